// DNS messages (RFC 1035, section 4; EDNS: RFC 6891), parsed from hostile bytes and written anew.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/bytes.h"
#include "base/result.h"

namespace drupe::net::dns {

/// Record types that something here depends on (IANA "DNS parameters").
enum Type : std::uint16_t {
  kA = 1,
  kNs = 2,
  kCname = 5,
  kSoa = 6,
  kPtr = 12,
  kMx = 15,
  kTxt = 16,
  kRp = 17,
  kAfsdb = 18,
  kAaaa = 28,
  kSrv = 33,
  kDname = 39,
  kOpt = 41,
  kSvcb = 64,
  kHttps = 65,
  kIxfr = 251,
  kAxfr = 252,
  kAny = 255,
};
inline constexpr std::uint16_t kInternet = 1;  ///< The class IN.

/// Response codes (RFC 1035, 4.1.1; 16: RFC 6891, 9).
enum class Rcode : std::uint8_t {
  kNoError = 0,
  kFormErr = 1,
  kServFail = 2,
  kNxDomain = 3,
  kNotImp = 4,
  kRefused = 5,
  kBadVers = 16,
};

/// "A", "AAAA", ..., "TYPE123".
[[nodiscard]] std::string type_text(std::uint16_t type);

/// A domain name: its labels as on the wire, without compression, ending with the empty label; at most 255
/// bytes. Case is kept.
class Name {
 public:
  Name() : wire_(1, '\0') {}
  /// Checked by the caller: what read_name() produced.
  explicit Name(std::string wire) : wire_(std::move(wire)) {}
  /// From dotted text of plain labels; nullopt when it is no host name.
  [[nodiscard]] static std::optional<Name> from_text(std::string_view text);

  [[nodiscard]] const std::string& wire() const { return wire_; }
  /// Dotted, without the dot at the end; a byte that is no letter, digit, '-' or '_' becomes '?', so that the
  /// text of such a name is never a host name. "." for the root.
  [[nodiscard]] std::string text() const;
  /// Equal but for the case of letters (RFC 4343).
  [[nodiscard]] bool same_as(const Name& other) const;

 private:
  std::string wire_;
};

struct Question {
  Name name;
  std::uint16_t type = 0;
  std::uint16_t klass = kInternet;
};

struct Record {
  Name name;
  std::uint16_t type = 0;
  std::uint16_t klass = kInternet;
  std::uint32_t ttl = 0;  ///< Seconds.
  std::string data;       ///< RDATA with names inside it uncompressed.
};

struct Edns {
  std::uint16_t udp_size = 512;  ///< What the sender can take.
  std::uint8_t version = 0;
  std::uint8_t extended_rcode = 0;  ///< Upper bits of the response code.
};

struct Message {
  std::uint16_t id = 0;
  bool response = false;
  std::uint8_t opcode = 0;
  bool authoritative = false;
  bool truncated = false;
  bool recursion_desired = false;
  bool recursion_available = false;
  bool checking_disabled = false;
  Rcode rcode = Rcode::kNoError;
  std::vector<Question> questions;
  std::vector<Record> answers;
  std::vector<Record> authority;
  std::optional<Edns> edns;  ///< Other additional records are read over.
};

/// More records than an answer of 60 addresses with its chain could have, and few enough that no message
/// makes this process large.
inline constexpr std::size_t kMaxRecords = 512;

/// Reads a whole message. kGuest (whoever sent it): cut short, trailing bytes, a name that is too long or
/// points forward or at itself, more than kMaxRecords records, a malformed record of a type above.
Result<Message> parse_message(ByteView bytes);
/// Only the identifier and the response flag; nullopt below 12 bytes.
struct Header {
  std::uint16_t id;
  bool response;
};
[[nodiscard]] std::optional<Header> peek_header(ByteView bytes);

/// Writes a message of at most `limit` bytes; one that does not fit gets no records and the truncated flag.
/// The question always fits into 512 bytes.
[[nodiscard]] std::string write_message(const Message& message, std::size_t limit);

/// Uncompressed name at the front of `data`, for RDATA of parsed records; nullopt when there is none.
[[nodiscard]] std::optional<Name> name_in_data(std::string_view data);

}  // namespace drupe::net::dns
