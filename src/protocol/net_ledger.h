// Memory of a sandbox's network process that outlives it: what its successor must know. The shim makes it and
// hands it to each process with its configuration.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "base/result.h"
#include "base/unique_fd.h"

namespace drupe::net {

inline constexpr std::uint32_t kLedgerMagic = 0x474c4644;  // "DFLG"
inline constexpr std::uint32_t kLedgerVersion = 1;

/// A connection of the guest that stands. `family` 0: none; it is written last, so that a process that is
/// killed meanwhile leaves no half of one.
struct LedgerFlow {
  std::uint8_t family = 0;  ///< 4 or 6.
  std::array<std::uint8_t, 3> reserved{};
  std::uint16_t guest_port = 0, remote_port = 0;
  std::array<std::uint8_t, 16> guest{}, remote{};  ///< IPv4: the first four.
};

/// An entry of the log. `sequence` 0: none; it is written last.
struct LedgerEntry {
  static constexpr std::size_t kText = 984;
  std::uint64_t sequence = 0;
  std::int64_t last_ms = 0;  ///< Changes while the entry stays.
  std::uint64_t count = 0;   ///< As well.
  std::uint16_t size = 0;    ///< Of `body`.
  std::array<std::uint8_t, kText> body{};
};

struct Ledger {
  static constexpr std::size_t kFlows = 2048, kEntries = 1024;
  std::uint32_t magic = kLedgerMagic, version = kLedgerVersion;
  std::uint64_t used_bytes = 0;  ///< Of the quota.
  std::array<LedgerFlow, kFlows> flows{};
  std::array<LedgerEntry, kEntries> entries{};
};

/// An empty one, whose size nobody can change any more; its pages exist once they are written to.
Result<UniqueFd> make_ledger();
/// What it says was used; 0 when it cannot be read. Hostile.
[[nodiscard]] std::uint64_t ledger_used_bytes(int ledger);

}  // namespace drupe::net
