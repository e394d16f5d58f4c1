// Raw connections to ports of guests: E95.
#include <charconv>

#include "api/routes/call.h"
#include "api/routes/pump.h"

namespace drupe::api {
namespace {

Answer<Data> tunnel(Call& call) {
  const std::string& text = call.part("port");
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size() || port == 0)
    return refuse(400, "invalid_argument", "port must be a number from 1 to 65535");
  if (!call.exchange.head().header_has("upgrade", "tcp-tunnel"))
    return refuse(400, "invalid_argument", "this address needs Upgrade: tcp-tunnel");
  API_ASSIGN(auto access,
             call.services.sandboxes.access(call.caller.id, call.sandbox(), "opening a tunnel to it"));
  API_ASSIGN(const auto guest, GuestPort::open(access, port));
  API_TRY(call.exchange.switch_protocols("tcp-tunnel"));
  static_cast<void>(guest->pump(call.exchange.fd(), {}, call.exchange.take_early_bytes()));
  return std::nullopt;
}

}  // namespace

std::vector<Route> tunnel_routes() {
  return {{"POST", "/v1/sandboxes/:id/tunnel/:port", tunnel}};
}

}  // namespace drupe::api
