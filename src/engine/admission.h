// Whether this machine has room for one more sandbox, and how many may start at once.
//
// The rule: what is in use counts as it is (the kernel's MemAvailable, or a tighter cgroup limit), and of
// everything that was promised to running sandboxes an eighth is kept free for them to grow into, 32 MiB more
// for each one's processes, and 256 MiB for the host. A sandbox that was promised more than the machine has
// is refused outright.
#pragma once

#include <cstdint>
#include <string>

#include "engine/home.h"

namespace drupe {

struct MemoryRoom {
  std::uint64_t total_mib = 0;      ///< Of the machine or the cgroup, whichever is less.
  std::uint64_t available_mib = 0;  ///< What could be used now without swapping.
};
/// From /proc/meminfo and the memory limits of this process's cgroups.
Result<MemoryRoom> memory_room();

/// What was promised to sandboxes that run now.
struct Promised {
  std::uint64_t sandboxes = 0;
  std::uint64_t mib = 0;
};
/// The rule. kLimit with a sentence when `mib` more has no room.
Status admit_memory(const MemoryRoom& room, const Promised& promised, std::uint64_t mib);

/// Fails with kLimit when the home's file system has less than `bytes` free.
Status check_disk_room(const Home& home, std::uint64_t bytes);

/// Promises `mib` to a sandbox for as long as it runs: writes its entry first and checks then, so of two that
/// start at once both see both. On failure the entry is gone again.
Status promise_memory(const Home& home, const std::string& id, std::uint64_t mib);
void release_promise(const Home& home, const std::string& id, std::uint64_t mib);
/// Sum of all entries. `exact`: entries whose sandbox is not alive are removed and not counted.
Result<Promised> promised_memory(const Home& home, bool exact);

/// One of the places for restores in progress, of which there are two for each core; the rest queue in the
/// order of their tickets, across processes. A place is given back when the value is destroyed or its process
/// dies.
class StartSlot {
 public:
  static Result<StartSlot> take(const Home& home, Deadline deadline);
  /// Without waiting and without a ticket; an invalid slot when none is free. For those who hold one already.
  static Result<StartSlot> try_take(const Home& home);
  [[nodiscard]] bool valid() const { return lock_.valid(); }
  [[nodiscard]] static std::uint32_t count();

  StartSlot() = default;

 private:
  explicit StartSlot(UniqueFd lock) : lock_(std::move(lock)) {}
  UniqueFd lock_;
};

}  // namespace drupe
