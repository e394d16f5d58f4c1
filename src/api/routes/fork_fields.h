// What a fork's body says of each child.
#pragma once

#include "api/json/value.h"
#include "api/service/sandboxes.h"

namespace drupe::api {

Result<ForkRequest> read_fork(const Value& body);

}  // namespace drupe::api
