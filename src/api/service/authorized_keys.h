// SSH keys in a guest: lines of root's authorized_keys.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/event_loop.h"
#include "base/result.h"
#include "shim/client.h"

namespace drupe::api {

/// Appends those of `add` that are not there, takes out those of `remove` that are not in `add`, and leaves
/// every other line as it is. A file that needs no change is not written.
Status put_authorized_keys(EventLoop& loop, ShimClient& client, const std::vector<std::string>& remove,
                           const std::vector<std::string>& add);

/// The new content; nothing when it would be the same.
[[nodiscard]] std::optional<std::string> changed_keys(std::string_view content,
                                                      const std::vector<std::string>& remove,
                                                      const std::vector<std::string>& add);

}  // namespace drupe::api
