#include "net/inspect/tls_reader.h"

#include <algorithm>

#include "net/policy/text.h"

namespace drupe::net {
namespace {

// Content types and limits of records: RFC 8446, 5.1 and 5.2 (TLS 1.2 allows 1 KiB more of padding).
constexpr std::uint8_t kChangeCipherSpec = 20;
constexpr std::uint8_t kAlert = 21;
constexpr std::uint8_t kHandshake = 22;
constexpr std::uint8_t kApplicationData = 23;
constexpr std::size_t kLongestPlain = 1 << 14;
constexpr std::size_t kLongestRecord = kLongestPlain + 2048;
constexpr std::uint8_t kClientHello = 1;
constexpr std::size_t kHandshakeHeader = 4;
// Servers that refuse early data read over some ten KiB of it; what goes on beyond this is a connection.
constexpr std::uint64_t kMostEarlyData = 1 << 20;

std::size_t hello_size(const std::string& hello) {
  const auto byte = [&](std::size_t i) {
    return static_cast<std::size_t>(static_cast<unsigned char>(hello[i]));
  };
  return byte(1) << 16 | byte(2) << 8 | byte(3);
}

}  // namespace

Inspection TlsReader::feed(ByteView bytes) {
  while (!bytes.empty() && phase_ != Phase::kRefused) {
    if (phase_ == Phase::kOpaque) {
      consumed_ += bytes.size();
      judged_ = consumed_;
      break;
    }
    std::size_t used = 0;
    if (left_ == 0) {
      header_[header_size_++] = bytes.front();
      used = 1;
    } else {
      used = std::min(left_, bytes.size());
      if (phase_ == Phase::kHello) hello_ += as_text(bytes.first(used));
      left_ -= used;
    }
    consumed_ += used;
    bytes = bytes.subspan(used);
    if (header_size_ == header_.size()) {
      header_size_ = 0;
      header_complete();
    } else if (header_size_ == 0) {
      if (phase_ == Phase::kHello) hello_grew();
      if (phase_ == Phase::kSkip) {
        judged_ = consumed_;
        if (left_ == 0) phase_ = Phase::kBetween;
      }
    }
    if (phase_ == Phase::kOpaque) judged_ = consumed_;
    if (phase_ == Phase::kHello && consumed_ - judged_ > kMaxHeld) refuse("the TLS client hello is too long");
  }
  return result();
}

void TlsReader::header_complete() {
  const std::uint8_t type = header_[0];
  left_ = static_cast<std::size_t>(header_[3]) << 8 | header_[4];
  if (header_[1] != 3 || left_ > kLongestRecord) return refuse("this is no TLS record");
  if (phase_ == Phase::kHello) {
    // The middle of a hello allows no other record (RFC 8446, 5.1), and no empty one.
    if (type != kHandshake) return refuse("the connection does not begin with a TLS client hello");
    if (left_ == 0 || left_ > kLongestPlain) return refuse("a TLS record has an impossible length");
    return;
  }
  switch (type) {
    case kHandshake:
      if (left_ == 0) return refuse("a TLS record has an impossible length");
      phase_ = Phase::kHello;
      hello_.clear();
      return;
    case kApplicationData:
      skipped_early_ += left_;
      if (!early_data_ || skipped_early_ > kMostEarlyData) {
        phase_ = Phase::kOpaque;
        return;
      }
      break;
    case kChangeCipherSpec:
    case kAlert:
      break;
    default:
      return refuse("this is no TLS record");
  }
  judged_ = consumed_;
  phase_ = left_ == 0 ? Phase::kBetween : Phase::kSkip;
}

void TlsReader::hello_grew() {
  if (hello_[0] != static_cast<char>(kClientHello)) {
    if (!first_accepted_) return refuse("the connection does not begin with a TLS client hello");
    // The client answers the server's first flight: there was no request to retry.
    phase_ = Phase::kOpaque;
    return;
  }
  if (hello_.size() < kHandshakeHeader) return;
  const std::size_t whole = kHandshakeHeader + hello_size(hello_);
  // Behind a hello, an encrypted Finished of TLS 1.2 may begin with a byte that looks like a hello's; its
  // next bytes then give a size that no server accepts.
  constexpr std::size_t kNoServerAccepts = 0x30000;
  if (first_accepted_ && whole >= kNoServerAccepts) {
    phase_ = Phase::kOpaque;
    return;
  }
  if (whole > kMaxHeld) return refuse("the TLS client hello is too long");
  if (hello_.size() > whole || (hello_.size() == whole && left_ != 0))
    return refuse("bytes follow the TLS client hello in its record");
  if (hello_.size() == whole) hello_complete();
}

void TlsReader::hello_complete() {
  const auto hello = parse_client_hello(as_bytes(hello_).subspan(kHandshakeHeader));
  if (!hello) return refuse(hello.error().message);
  if (hello->encrypted && options_.encrypted == EncryptedHello::kRefuse)
    return refuse("the TLS client hello is encrypted (or pretends to be)");
  if (first_accepted_ && hello->name.value_or("") != name_)
    return refuse("the second TLS client hello names another server");
  if (!hello->name && options_.name_required) return refuse("the TLS client hello names no server");
  if (hello->name && !judge_(*hello->name))
    return refuse("the TLS server name " + shown(*hello->name) + " is not allowed here");
  name_ = hello->name.value_or("");
  first_accepted_ = true;
  early_data_ = hello->early_data;
  hello_.clear();
  judged_ = consumed_;
  phase_ = hello->offers_tls13 ? Phase::kBetween : Phase::kOpaque;
}

void TlsReader::refuse(std::string reason) {
  phase_ = Phase::kRefused;
  reason_ = std::move(reason);
}

Inspection TlsReader::result() const {
  if (phase_ == Phase::kRefused) return {Inspection::Verdict::kRefuse, judged_, reason_};
  return {judged_ == consumed_ ? Inspection::Verdict::kPass : Inspection::Verdict::kNeedMore, judged_, {}};
}

}  // namespace drupe::net
