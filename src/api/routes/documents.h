// The API in words that programs read: OpenAPI 3.1, made from the routes themselves.
#pragma once

#include <string>
#include <vector>

#include "api/routes/call.h"

namespace drupe::api {

/// Every route is in it. What is known of a route's fields stands in documents.cpp.
[[nodiscard]] std::string openapi_document(const std::vector<Route>& routes);

}  // namespace drupe::api
