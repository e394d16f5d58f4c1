// Reading DNS messages. Every loop is bounded by the message's size, and names cannot point in circles.
#include "net/dns/message.h"

namespace drupe::net::dns {
namespace {

constexpr std::size_t kLongestName = 255;  // RFC 1035, 2.3.4

std::unexpected<Error> bad(const char* why) {
  return fail(ErrorCode::kGuest, std::string("A DNS message is malformed: ") + why);
}

class Reader {
 public:
  explicit Reader(ByteView bytes) : bytes_(bytes) {}

  Result<Message> message() {
    Message message;
    if (bytes_.size() < 12) return bad("its header is cut short");
    message.id = number16();
    flags(message, number16());
    const std::size_t questions = number16();
    const std::size_t answers = number16();
    const std::size_t authority = number16();
    const std::size_t additional = number16();
    if (questions > 1) return bad("it has several questions");
    if (answers + authority + additional > kMaxRecords) return bad("it has too many records");
    if (questions == 1) {
      Question question;
      DRUPE_ASSIGN(question.name, name());
      if (left() < 4) return bad("its question is cut short");
      question.type = number16();
      question.klass = number16();
      message.questions.push_back(std::move(question));
    }
    DRUPE_TRY(records(answers, [&](Record&& record) { return keep(message.answers, std::move(record)); }));
    DRUPE_TRY(
        records(authority, [&](Record&& record) { return keep(message.authority, std::move(record)); }));
    DRUPE_TRY(records(additional, [&](const Record& record) { return extra(message, record); }));
    if (left() != 0) return bad("bytes follow its last record");
    return message;
  }

 private:
  static void flags(Message& message, std::uint16_t bits) {
    message.response = (bits & 0x8000) != 0;
    message.opcode = static_cast<std::uint8_t>(bits >> 11 & 0xf);
    message.authoritative = (bits & 0x0400) != 0;
    message.truncated = (bits & 0x0200) != 0;
    message.recursion_desired = (bits & 0x0100) != 0;
    message.recursion_available = (bits & 0x0080) != 0;
    message.checking_disabled = (bits & 0x0010) != 0;
    message.rcode = static_cast<Rcode>(bits & 0xf);
  }

  static Status keep(std::vector<Record>& into, Record&& record) {
    if (record.type == kOpt) return bad("it has EDNS data in the wrong place");
    into.push_back(std::move(record));
    return {};
  }

  static Status extra(Message& message, const Record& record) {
    if (record.type != kOpt) return {};
    if (message.edns || record.name.wire().size() != 1) return bad("its EDNS record is wrong");
    // RFC 6891, 6.1.3: the class is the size, the TTL holds code, version and flags.
    message.edns = Edns{record.klass, static_cast<std::uint8_t>(record.ttl >> 16 & 0xff),
                        static_cast<std::uint8_t>(record.ttl >> 24)};
    return {};
  }

  template <class Take>
  Status records(std::size_t count, Take take) {
    for (std::size_t i = 0; i < count; ++i) {
      Record record;
      DRUPE_ASSIGN(record.name, name());
      if (left() < 10) return bad("a record is cut short");
      record.type = number16();
      record.klass = number16();
      record.ttl = static_cast<std::uint32_t>(number16()) << 16;
      record.ttl |= number16();
      const std::size_t size = number16();
      if (left() < size) return bad("a record is longer than the message");
      const std::size_t end = at_ + size;
      DRUPE_ASSIGN(record.data, data(record.type, end));
      if (at_ != end) return bad("the data of a record does not fit its length");
      DRUPE_TRY(take(std::move(record)));
    }
    return {};
  }

  /// RDATA up to `end`; in types that RFC 1035 and RFC 1183 let compress, names are written out (RFC 3597,
  /// 4).
  Result<std::string> data(std::uint16_t type, std::size_t end) {
    switch (type) {
      case kA:
        if (end - at_ != 4) return bad("an address record has the wrong size");
        break;
      case kAaaa:
        if (end - at_ != 16) return bad("an address record has the wrong size");
        break;
      case kNs:
      case kCname:
      case kPtr:
      case kDname:
        return names(0, 1, end);
      case kMx:
      case kAfsdb:
        return names(2, 1, end);
      case kSrv:
        return names(6, 1, end);
      case kSoa:
      case kRp:
        return names(0, 2, end);
      default:
        break;
    }
    return rest(end);
  }

  /// `fixed` bytes, `count` names, and what remains.
  Result<std::string> names(std::size_t fixed, int count, std::size_t end) {
    if (end - at_ < fixed) return bad("the data of a record is cut short");
    std::string out = rest(at_ + fixed);
    for (int i = 0; i < count; ++i) {
      DRUPE_ASSIGN(const Name part, name());
      if (at_ > end) return bad("a name is longer than its record");
      out += part.wire();
    }
    return out + rest(end);
  }

  /// A name at the current place. Each pointer must lead before the place where the part that holds it began
  /// (RFC 1035, 4.1.4: a *prior* occurrence), so the places fall and the loop ends.
  Result<Name> name() {
    std::string wire;
    std::size_t at = at_;
    std::size_t start = at_;
    bool jumped = false;
    while (true) {
      if (at >= bytes_.size()) return bad("a name is cut short");
      const std::size_t size = bytes_[at];
      if ((size & 0xc0) == 0xc0) {
        if (at + 1 >= bytes_.size()) return bad("a name is cut short");
        const std::size_t target = (size & 0x3f) << 8 | bytes_[at + 1];
        if (!jumped) at_ = at + 2;
        jumped = true;
        if (target >= start || target < 12) return bad("a name points at no name before it");
        at = start = target;
        continue;
      }
      if ((size & 0xc0) != 0) return bad("a label has an unknown form");
      if (bytes_.size() - at - 1 < size) return bad("a name is cut short");
      if (wire.size() + size + 1 > kLongestName) return bad("a name is too long");
      wire += as_text(bytes_.subspan(at, size + 1));
      at += size + 1;
      if (size == 0) break;
    }
    if (!jumped) at_ = at;
    return Name(std::move(wire));
  }

  std::string rest(std::size_t end) {
    std::string out(as_text(bytes_.subspan(at_, end - at_)));
    at_ = end;
    return out;
  }

  [[nodiscard]] std::size_t left() const { return bytes_.size() - at_; }
  std::uint16_t number16() {
    const auto value = static_cast<std::uint16_t>(bytes_[at_] << 8 | bytes_[at_ + 1]);
    at_ += 2;
    return value;
  }

  ByteView bytes_;
  std::size_t at_ = 0;
};

}  // namespace

Result<Message> parse_message(ByteView bytes) {
  return Reader(bytes).message();
}

}  // namespace drupe::net::dns
