#include "api/routes/preview.h"

#include <algorithm>
#include <array>
#include <charconv>

#include "api/routes/pump.h"
#include "api/service/ids.h"

namespace drupe::api {
namespace {

std::string lower(std::string_view text) {
  std::string out(text);
  for (char& c : out)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

/// What is said anew, and what is nobody's business in the guest.
constexpr std::array<std::string_view, 6> kLeftOut{"host",      "connection",     "keep-alive",
                                                   "x-api-key", "x-access-token", "proxy-connection"};

/// The request's head as the guest's server gets it. One request for each connection: the guest's server says
/// with its end where the answer ends.
std::string head_for_guest(const RequestHead& head, std::uint16_t port) {
  std::string out =
      head.method + " " + head.target + " HTTP/1.1\r\nhost: localhost:" + std::to_string(port) + "\r\n";
  for (const Header& one : head.headers)
    if (std::ranges::find(kLeftOut, one.name) == kLeftOut.end()) out += one.name + ": " + one.value + "\r\n";
  const bool upgrade = head.header_has("connection", "upgrade");
  out += upgrade ? "connection: Upgrade\r\n" : "connection: close\r\n";
  return out + "x-forwarded-host: " + std::string(head.header("host").value_or("")) + "\r\n\r\n";
}

}  // namespace

std::optional<Preview> preview_of(const RequestHead& head, std::string_view domain) {
  std::string host = lower(head.header("host").value_or(""));
  if (const auto colon = host.rfind(':'); colon != std::string::npos) host.resize(colon);
  const std::string suffix = "." + lower(domain);
  if (domain.empty() || !host.ends_with(suffix)) return std::nullopt;
  host.resize(host.size() - suffix.size());
  Preview preview;
  const auto dash = host.rfind('-');
  if (dash == std::string::npos || !is_sandbox_id(host.substr(0, dash))) return preview;
  const std::string_view digits = std::string_view(host).substr(dash + 1);
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (error != std::errc() || end != digits.data() + digits.size()) return preview;
  preview.id = host.substr(0, dash);
  preview.port = port;
  return preview;
}

void serve_preview(Exchange& exchange, Services& services, const Preview& preview) {
  exchange.close_after();
  const auto say = [&](const ApiError& error) { static_cast<void>(exchange.send(failure(error))); };
  if (preview.port == 0) return say({404, "no sandbox has this address: not found", "not_found"});
  auto access = services.sandboxes.ingress(preview.id);
  if (!access && access.error().code == ErrorCode::kNotFound)
    return say({404, "no sandbox has this address: not found", "not_found"});
  if (!access) return say({502, "the sandbox does not run", "bad_gateway"});
  const auto guest = GuestPort::open(*access, preview.port);
  const ApiError nothing{502, "nothing listens on port " + std::to_string(preview.port) + " of the sandbox",
                         "bad_gateway"};
  if (!guest) return say(nothing);
  std::string early = exchange.take_early_bytes();
  exchange.take_over();
  const auto pumped =
      (*guest)->pump(exchange.fd(), head_for_guest(exchange.head(), preview.port), std::move(early));
  if (!pumped && pumped.error().code == ErrorCode::kUnavailable) say(nothing);
}

}  // namespace drupe::api
