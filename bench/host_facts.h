// What a benchmark must know of the host: load, memory of processes, room on disk.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"

namespace drupe::bench {

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
/// Bytes that a tree takes on disk, every inode once.
Result<std::uint64_t> disk_usage(const std::string& path);
/// Entries of a directory; 0 when it is missing.
[[nodiscard]] std::size_t count_entries(const std::string& path);
/// Processes of this host that are a shim or a hypervisor (zombies not counted).
[[nodiscard]] std::size_t machine_processes();

}  // namespace drupe::bench
