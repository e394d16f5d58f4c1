// Names of sandboxes: what is allowed, and who has which.
//
// names/<name> is a link whose text is an id. It is valid only while that sandbox exists and its record says
// the same name. Whoever gives a name writes the link before the record, so every record's name has its link,
// and a link that a killed process left behind is recognised and taken over. All changes happen under the
// home's lock.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "engine/home.h"

namespace drupe {

/// [A-Za-z0-9][A-Za-z0-9_.-]{0,127}
Status check_name(std::string_view name);
/// Two words, like "brave_otter": a name for a sandbox that was given none. May be taken.
[[nodiscard]] std::string invent_name();

/// The id that has `name`, if any.
Result<std::optional<std::string>> lookup_name(const Home& home, const std::string& name);
/// kAlreadyExists when a sandbox other than `id` has `name`, kInvalidArgument when none may.
Status check_free_name(const Home& home, const std::string& name, const std::string& id);
/// Gives `name` to `id`; kAlreadyExists when another sandbox has it. The caller holds the home's lock.
Status take_name(const Home& home, const std::string& name, const std::string& id);
/// Removes the link if it points to `id`. The caller holds the home's lock.
void drop_name(const Home& home, const std::string& name, const std::string& id);

/// The one entry of `candidates` that `text` means: itself, or the only one that begins with it.
/// kNotFound, or kInvalidArgument when several begin with it (they are listed). `what` is "sandbox" or
/// "name".
Result<std::string> match_prefix(const std::vector<std::string>& candidates, std::string_view text);
/// Resolves an exact name, an id, a unique prefix of an id, or a unique prefix of a name, in this order.
Result<std::string> resolve_sandbox(const Home& home, std::string_view id_or_name);

}  // namespace drupe
