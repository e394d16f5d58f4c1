// Reading a stopped machine's own pages from outside, through descriptors of /proc/PID/pagemap and
// /proc/PID/mem that were opened right after the process had started.
#pragma once

#include <cstdint>
#include <vector>

#include "base/event_loop.h"
#include "base/result.h"
#include "hypervisor/hypervisor.h"

namespace drupe {

inline constexpr std::uint64_t kPageBytes = 4096;
/// Each extent costs the restored process up to two memory mappings of the 65,530 that the kernel allows.
inline constexpr std::size_t kMaxExtents = 16'000;

/// Where a process has its guest's RAM. A hypervisor that lies about `address` only saves the wrong parts of
/// itself.
struct RamView {
  int mem_fd = -1;
  int pagemap_fd = -1;
  std::uint64_t address = 0;  ///< Page-aligned.
  std::uint64_t bytes = 0;    ///< Multiple of the page size.
};

/// Sorted, disjoint ranges of RAM; close neighbours are joined, and when there are too many, less close ones,
/// too.
class ExtentList {
 public:
  /// `max_gap`: neighbours at most this many bytes apart become one. `limit`: most extents ever held.
  explicit ExtentList(std::uint64_t max_gap = 8 * kPageBytes, std::size_t limit = kMaxExtents)
      : max_gap_(max_gap), limit_(limit) {}
  /// Ranges come in ascending order.
  void add(std::uint64_t ram_offset, std::uint64_t length);
  /// With file offsets one behind the other.
  [[nodiscard]] std::vector<MemoryExtent> packed() &&;

 private:
  void join();
  std::uint64_t max_gap_;
  std::size_t limit_;
  std::vector<MemoryExtent> extents_;
};

/// Writes the pages that differ from the base to `out`: the process's private pages and everything in
/// `previous` (the extents of the delta file it was started from). kWhole: at their RAM offsets, zero pages
/// as holes.
Result<SavedMemory> capture_pages(const RamView& ram, const std::vector<MemoryExtent>& previous,
                                  SaveForm form, int out, Deadline deadline);

/// kIntegrity unless the extents are page-aligned, sorted, disjoint, inside RAM and file, and not too many.
Status check_extents(const std::vector<MemoryExtent>& extents, std::uint64_t ram_bytes,
                     std::uint64_t file_bytes);

}  // namespace drupe
