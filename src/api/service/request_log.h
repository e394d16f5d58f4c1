// What the log says of requests, and which request a thread works on.
#pragma once

#include <string>
#include <string_view>

namespace drupe::api {

/// From here on every line of the log is a JSON object: time, name, level, text, and request_id where there
/// is one. Set once, early in main().
void log_as_json();

/// The calling thread works on that request while this exists.
class RequestScope {
 public:
  explicit RequestScope(std::string_view request_id);
  ~RequestScope();
  RequestScope(const RequestScope&) = delete;
  RequestScope& operator=(const RequestScope&) = delete;
};

struct RequestLine {
  std::string_view request_id, client;
  std::string_view method, route;  ///< Words of this program.
  int status = 0;
  double ms = 0;
  std::string_view user_id;
  std::string_view object;  ///< A client's bytes.
  std::string_view code;    ///< Of a refusal.
};
/// "request id=req_... method=POST ...", or the same as fields of one object.
void log_request(const RequestLine& line);

}  // namespace drupe::api
