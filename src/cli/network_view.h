// What a sandbox may reach, and what became of its attempts, as people and programs read it.
#pragma once

#include <string>
#include <string_view>

#include "engine/engine.h"
#include "shim/record.h"

namespace drupe::cli {

/// One JSON object.
[[nodiscard]] std::string network_json(const NetworkRecord& network);
/// One JSON object of a private network.
[[nodiscard]] std::string private_network_json(const NetworkInfo& network);
/// Lines without a line end behind the last.
[[nodiscard]] std::string network_text(const NetworkRecord& network);
/// An entry of the network's log, from its JSON; what is not understood is printed as it is, safe for a
/// terminal.
[[nodiscard]] std::string log_line(std::string_view json);

}  // namespace drupe::cli
