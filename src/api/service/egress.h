// Egress lists of the API as network options of the engine.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace drupe::api {

/// Nothing, an empty list and a list with "*" mean everything (that is not closed); any other list means only
/// what it says. kInvalidArgument for what is no rule. `open_ranges`: closed ranges that the operator has
/// opened; a rule that lies in a closed one that is not is kPermission.
Result<NetworkOptions> network_for(const std::optional<std::vector<std::string>>& egress,
                                   const std::vector<std::string>& open_ranges);

}  // namespace drupe::api
