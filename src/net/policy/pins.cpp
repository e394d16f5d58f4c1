#include "net/policy/pins.h"

#include <algorithm>

namespace drupe::net {

void Pins::pin(std::string_view name, std::span<const IpAddress> addresses, std::chrono::seconds ttl,
               Time now) {
  const Time until = now + std::clamp(ttl, kFloor, kCeiling) + kGrace;
  for (const IpAddress& address : addresses) {
    auto& here = by_address_[address];
    const auto known = std::ranges::find_if(here, [&](const auto& pair) { return pair->name == name; });
    if (known != here.end()) {
      (*known)->until = std::max((*known)->until, until);
      pairs_.splice(pairs_.end(), pairs_, *known);
      continue;
    }
    pairs_.push_back({std::string(name), address, until});
    here.push_back(std::prev(pairs_.end()));
    if (pairs_.size() > limit_) drop(pairs_.begin());
  }
}

std::vector<std::string> Pins::names_at(const IpAddress& address, Time now) {
  std::vector<std::string> names;
  const auto found = by_address_.find(address);
  if (found == by_address_.end()) return names;
  // A copy: dropping the last pair of an address drops its entry.
  const std::vector<Pairs::iterator> here = found->second;
  for (const auto& pair : here) {
    if (pair->until < now) {
      drop(pair);
      continue;
    }
    names.push_back(pair->name);
    pairs_.splice(pairs_.end(), pairs_, pair);
  }
  return names;
}

std::vector<Pins::Saved> Pins::saved(Time now) const {
  std::vector<Saved> out;
  for (const Pair& pair : pairs_)
    if (pair.until >= now)
      out.push_back({pair.name, pair.address, std::chrono::floor<std::chrono::seconds>(pair.until - now)});
  return out;
}

void Pins::restore(std::span<const Saved> pins, Time now) {
  for (const Saved& pin : pins) {
    pairs_.push_back({pin.name, pin.address, now + std::min(pin.left, kLongest)});
    by_address_[pin.address].push_back(std::prev(pairs_.end()));
    if (pairs_.size() > limit_) drop(pairs_.begin());
  }
}

void Pins::drop(Pairs::iterator pair) {
  const auto found = by_address_.find(pair->address);
  std::erase(found->second, pair);
  if (found->second.empty()) by_address_.erase(found);
  pairs_.erase(pair);
}

}  // namespace drupe::net
