// What of an upstream answer reaches the guest.
#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "net/dns/message.h"
#include "net/policy/policy.h"

namespace drupe::net::dns {

struct Filtered {
  std::vector<Record> answers;       ///< The alias chain and the records asked for, in order, TTLs lowered.
  std::vector<Record> authority;     ///< Only the SOA of a negative answer.
  std::vector<IpAddress> addresses;  ///< To be pinned to the name asked for.
  std::chrono::seconds ttl{0};       ///< For the pin: the smallest of the chain and the addresses.
  /// Addresses that were dropped, with the closed range: "closed: private 10.0.0.0/8".
  std::vector<std::pair<IpAddress, std::string>> dropped;
};

/// Keeps the chain of aliases that begins at the question's name (at most kLongestChain, RFC 1034 leaves the
/// number open), and behind it the records of the type asked for. Addresses in closed ranges are dropped: an
/// answer cannot make a public name mean an internal host. All else is dropped: other types (among them HTTPS
/// and SVCB, which carry addresses and keys of their own), other owners, the additional section.
[[nodiscard]] Filtered filter_answer(const Message& upstream, const Question& question, const Policy& policy);

inline constexpr std::size_t kLongestChain = 16;

}  // namespace drupe::net::dns
