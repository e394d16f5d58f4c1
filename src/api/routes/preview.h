// Preview addresses: "<id>-<port>.<domain>" as the Host of a request leads to that port of the sandbox
// (section ingress of docs/createos-compatibility.md). No route of the API can be reached under such a name.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "api/http/exchange.h"
#include "api/routes/call.h"

namespace drupe::api {

struct Preview {
  std::string id;
  std::uint16_t port = 0;  ///< 0: the name is below the domain, but is no sandbox's.
};
/// Nothing when the request is for another name.
[[nodiscard]] std::optional<Preview> preview_of(const RequestHead& head, std::string_view domain);
/// Passes the request on and the answer back, as they come; the connection ends with it.
void serve_preview(Exchange& exchange, Services& services, const Preview& preview);

}  // namespace drupe::api
