// What the engine tells a new shim. It arrives on descriptor 3 (kSpecFd) as encode()d bytes; with it come the sandbox's
// directory, its locked lock file and the status pipe, at fixed numbers. Everything else is opened in that directory before the shim
// locks itself down.
#pragma once

#include <cstdint>
#include <string>

#include "base/result.h"
#include "hypervisor/hypervisor.h"

namespace drupe {

inline constexpr int kSpecFd = 3;
inline constexpr int kDirFd = 4;
inline constexpr int kLockFd = 5;    ///< The engine holds flock(LOCK_EX) on this open file; inheriting it inherits the lock.
inline constexpr int kStatusFd = 6;  ///< The shim writes one ShimStatus and closes it.

enum class LaunchMode : std::uint8_t {
  kBoot,        ///< Cold boot of the disk.
  kFromBase,    ///< From the linked base snapshot: fresh identity.
  kResume,      ///< From record.saved: same identity.
  kForkChild,   ///< From record.saved: fresh identity.
  kMakeBase,    ///< Cold boot, exercise, save into the directory as a base snapshot ("ram", "state", disk), end.
};

struct ShimSpec {
  std::uint32_t version = 1;
  LaunchMode mode = LaunchMode::kBoot;
  bool start_main_on_attach = false;  ///< Foreground: main starts when the first client attaches to it.
  bool owner_bound = false;           ///< Ends the sandbox when `owner_pid` ends or the first client's connection closes.
  int owner_pid = 0;
  std::uint32_t start_deadline_ms = 60'000;
  std::uint32_t restore_retries = 1;
  Accelerator accelerator = Accelerator::kTcg;
  std::uint64_t tsc_khz = 0;
  std::string qemu_path;
  std::string preload_path;           ///< libdrupe-ram.so
  std::string record_dir_path;        ///< For messages only.
  std::vector<std::string> exercise;  ///< kMakeBase: shell lines to run (each by /bin/sh -c; failures ignored) so that hot code is loaded.
  [[nodiscard]] std::string encode() const;
  static Result<ShimSpec> decode(std::string_view bytes);
};

struct ShimStatus {
  std::optional<Error> error;  ///< Absent: the sandbox runs (kMakeBase: is saved).
  /// Milliseconds since the shim's start at which each stage was done: "hypervisor", "state", "agent", "setup".
  std::vector<std::pair<std::string, double>> timings;
  [[nodiscard]] std::string encode() const;
  static Result<ShimStatus> decode(std::string_view bytes);
};

}  // namespace drupe
