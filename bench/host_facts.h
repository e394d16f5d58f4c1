// What a benchmark must know of the host: load, memory of processes, room on disk.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace drupe::bench {

/// Processor time of this process and everything it starts from now on, also of what outlives its parents, by
/// a cgroup of its own (version 1, controller cpuacct; needs root). On a busy machine it says more than the
/// clock on the wall.
class CpuMeter {
 public:
  CpuMeter();
  ~CpuMeter();
  CpuMeter(const CpuMeter&) = delete;
  CpuMeter& operator=(const CpuMeter&) = delete;
  /// Milliseconds so far; 0 where there is no such cgroup.
  [[nodiscard]] double ms() const;

 private:
  std::string path_;  ///< Empty: none.
};

/// Of the last minute.
[[nodiscard]] double load_average();
/// CPU model, count, kernel, memory.
[[nodiscard]] std::vector<std::pair<std::string, std::string>> machine_facts();

/// Bytes from /proc/PID/smaps_rollup.
struct ProcessMemory {
  std::uint64_t rss = 0, pss = 0;
  std::uint64_t own = 0;  ///< Private_Clean + Private_Dirty.
};
Result<ProcessMemory> process_memory(int pid);
Result<int> parent_of(int pid);
/// Free bytes of the file system of `path`, room that is promised to unwritten pages taken off.
Result<std::uint64_t> free_bytes(const std::string& path);
/// Entries of a directory; 0 when it is missing.
[[nodiscard]] std::size_t count_entries(const std::string& path);
/// Processes of this host that are a shim or a hypervisor (zombies not counted).
[[nodiscard]] std::size_t machine_processes();

}  // namespace drupe::bench
