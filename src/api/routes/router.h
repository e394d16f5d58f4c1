// Finds the route of a request, asks who makes it, and answers.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "api/http/exchange.h"
#include "api/routes/call.h"

namespace drupe::api {

/// Callable from any thread.
class Router {
 public:
  explicit Router(Services services);
  void handle(Exchange& exchange);

 private:
  struct Entry {
    Route route;
    std::vector<std::string> segments;
  };
  Answer<User> authenticate(const RequestHead& head);
  Answer<Data> answer(Exchange& exchange);

  Services services_;
  std::vector<Entry> entries_;
};

/// The hash that a key is stored under.
[[nodiscard]] std::string key_hash(std::string_view key);

}  // namespace drupe::api
