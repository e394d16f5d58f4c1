// Which names this sandbox has been told an address for: the bridge from DNS answers to connections.
#pragma once

#include <chrono>
#include <cstddef>
#include <list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "net/policy/address.h"

namespace drupe::net {

/// Time of the monotonic clock, given by the caller.
using Time = std::chrono::steady_clock::time_point;

/// Pairs of name and address, each until the answer's TTL, bounded: the pair used least recently makes room.
/// One thread.
class Pins {
 public:
  /// A TTL of 0 still leaves the client time to connect, and one of a week does not outlive a policy's sense.
  /// The TTL that the guest is told is never above the ceiling, so it does not cache longer than the pin.
  static constexpr std::chrono::seconds kFloor{60};
  static constexpr std::chrono::seconds kCeiling{3600};
  /// A client that connects in the TTL's last moment still finds the pin.
  static constexpr std::chrono::seconds kGrace{5};
  static constexpr std::chrono::seconds kLongest = kCeiling + kGrace;
  static constexpr std::size_t kMaxPins = 4096;

  explicit Pins(std::size_t limit = kMaxPins) : limit_(limit) {}
  Pins(const Pins&) = delete;
  Pins& operator=(const Pins&) = delete;

  /// Pins `addresses` to `name` (normalised) from `now` on; a pair that is there lives on to the later end.
  void pin(std::string_view name, std::span<const IpAddress> addresses, std::chrono::seconds ttl, Time now);
  /// The names that `address` is pinned to at `now`, in the order of their first answer; marks them used.
  [[nodiscard]] std::vector<std::string> names_at(const IpAddress& address, Time now);
  /// A pair and the time that it lives on.
  struct Saved {
    std::string name;
    IpAddress address;
    std::chrono::seconds left{0};  ///< 0..kLongest
    bool operator==(const Saved&) const = default;
  };
  /// Those that live at `now`, used least recently first.
  [[nodiscard]] std::vector<Saved> saved(Time now) const;
  /// Goes on with them: the guest's clocks stood still meanwhile. Precondition: nothing is pinned.
  void restore(std::span<const Saved> pins, Time now);
  [[nodiscard]] std::size_t size() const { return pairs_.size(); }

 private:
  struct Pair {
    std::string name;
    IpAddress address;
    Time until;
  };
  using Pairs = std::list<Pair>;
  void drop(Pairs::iterator pair);

  std::size_t limit_;
  Pairs pairs_;  ///< Used least recently first.
  std::unordered_map<IpAddress, std::vector<Pairs::iterator>, IpAddressHash> by_address_;
};

}  // namespace drupe::net
