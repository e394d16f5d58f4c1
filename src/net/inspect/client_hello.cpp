#include "net/inspect/client_hello.h"

#include <bitset>

namespace drupe::net {
namespace {

// IANA "TLS ExtensionType Values".
constexpr std::uint16_t kServerName = 0;
constexpr std::uint16_t kEarlyData = 42;
constexpr std::uint16_t kSupportedVersions = 43;
constexpr std::uint16_t kEncryptedHello = 0xfe0d;
constexpr std::uint16_t kEncryptedName = 0xffce;  // the drafts before
constexpr std::uint16_t kTls13 = 0x0304;

/// Reads big-endian vectors; after the first one that does not fit ok() is false and all reads are empty.
class Cursor {
 public:
  explicit Cursor(ByteView bytes) : rest_(bytes) {}
  ByteView take(std::size_t size) {
    if (!ok_ || rest_.size() < size) {
      ok_ = false;
      return {};
    }
    const ByteView part = rest_.first(size);
    rest_ = rest_.subspan(size);
    return part;
  }
  std::size_t number(std::size_t size) {
    std::size_t value = 0;
    for (const std::uint8_t byte : take(size)) value = value << 8 | byte;
    return value;
  }
  /// A vector behind its length of `length_size` bytes.
  ByteView vector(std::size_t length_size) { return take(number(length_size)); }
  [[nodiscard]] bool ok() const { return ok_; }
  [[nodiscard]] bool empty() const { return rest_.empty(); }
  [[nodiscard]] bool done() const { return ok_ && rest_.empty(); }

 private:
  ByteView rest_;
  bool ok_ = true;
};

std::unexpected<Error> bad(const char* why) {
  return fail(ErrorCode::kGuest, std::string("The TLS client hello is malformed: ") + why);
}

Result<std::string> server_name(ByteView data) {
  Cursor outer(data);
  Cursor list(outer.vector(2));
  if (!outer.done()) return bad("its server name does not fit its length");
  const std::size_t type = list.number(1);
  const ByteView name = list.vector(2);
  if (!list.done() || type != 0) return bad("it does not have exactly one server name");
  if (name.empty()) return bad("its server name is empty");
  return std::string(as_text(name));
}

Result<bool> offers_tls13(ByteView data) {
  Cursor outer(data);
  Cursor list(outer.vector(1));
  if (!outer.done()) return bad("its list of versions does not fit its length");
  bool found = false;
  while (!list.empty() && list.ok()) found = list.number(2) == kTls13 || found;
  if (!list.ok()) return bad("its list of versions is cut short");
  return found;
}

Status take_extension(ClientHello& hello, std::size_t type, ByteView data) {
  switch (type) {
    case kServerName: {
      DRUPE_ASSIGN(hello.name, server_name(data));
      break;
    }
    case kSupportedVersions: {
      DRUPE_ASSIGN(hello.offers_tls13, offers_tls13(data));
      break;
    }
    case kEarlyData:
      hello.early_data = true;
      break;
    case kEncryptedHello:
    case kEncryptedName:
      hello.encrypted = true;
      break;
    default:
      break;
  }
  return {};
}

}  // namespace

Result<ClientHello> parse_client_hello(ByteView body) {
  constexpr std::size_t kRandom = 32;
  constexpr std::size_t kLongestSession = 32;
  Cursor in(body);
  if (in.number(2) >> 8 != 3 && in.ok()) return bad("its version is unknown");
  static_cast<void>(in.take(kRandom));
  const ByteView session = in.vector(1);
  const ByteView suites = in.vector(2);
  const ByteView compression = in.vector(1);
  if (!in.ok()) return bad("it is cut short");
  if (session.size() > kLongestSession || suites.empty() || suites.size() % 2 != 0 || compression.empty())
    return bad("a field has an impossible length");
  ClientHello hello;
  if (in.empty()) return hello;
  Cursor extensions(in.vector(2));
  if (!in.done()) return bad("its extensions do not fit its length");
  std::bitset<65536> seen;
  while (!extensions.empty()) {
    const std::size_t type = extensions.number(2);
    const ByteView data = extensions.vector(2);
    if (!extensions.ok()) return bad("an extension is cut short");
    if (seen[type]) return bad("it has an extension twice");
    seen[type] = true;
    DRUPE_TRY(take_extension(hello, type, data));
  }
  return hello;
}

}  // namespace drupe::net
