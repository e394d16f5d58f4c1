// The sandbox object of the API.
#pragma once

#include <string>

#include "api/service/sandboxes.h"

namespace drupe::api {

/// `created`: the answer of a create, which says more.
[[nodiscard]] std::string sandbox_json(const SandboxView& view, const SandboxSettings& settings,
                                       bool created = false);

}  // namespace drupe::api
