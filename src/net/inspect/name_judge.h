// What readers of client bytes share: how a name is judged, how much may go on, how much may be held.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace drupe::net {

/// True when the client may speak to a server of this name (as sent, not normalised) on this connection.
using NameJudge = std::function<bool(std::string_view name)>;

/// No reader holds more client bytes than this before it judges them; more is refused. Whoever keeps the
/// bytes needs room for one of these per connection whose beginning is still read.
inline constexpr std::size_t kMaxHeld = std::size_t{32} * 1024;

/// What is true after some bytes.
struct Inspection {
  enum class Verdict : std::uint8_t {
    kNeedMore,  ///< Bytes above `release` are held until more come.
    kPass,      ///< Everything so far may go on.
    kRefuse,    ///< The connection ends; `reason` says why. Nothing above `release` may go on.
  };
  Verdict verdict = Verdict::kNeedMore;
  /// Number of client bytes, counted from the connection's first, that may be forwarded. Never falls.
  std::uint64_t release = 0;
  std::string reason;
};

}  // namespace drupe::net
