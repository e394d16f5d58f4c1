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
  struct Caller {
    User user;
    std::string only;  ///< Id of the one sandbox that a delegated token works with; empty: everything.
  };
  Answer<Caller> authenticate(const RequestHead& head);
  /// Whether a delegated token is good for this; anything else is.
  static Status check_token(const Entry* found, const RequestHead& head, const Caller& caller);
  /// What is said of a request in the logs.
  struct Told {
    std::string_view route = "none";
    User user;
    std::string_view by;
    std::string object;
    std::string code;
  };
  Answer<Data> answer(Exchange& exchange, Told& told);
  void serve(Exchange& exchange, Told& told);
  void tell(const Exchange& exchange, const Told& told, double ms);

  Services services_;
  std::vector<Entry> entries_;
};

/// The hash that a key is stored under.
[[nodiscard]] std::string key_hash(std::string_view key);

}  // namespace drupe::api
