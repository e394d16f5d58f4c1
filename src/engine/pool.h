// A pool of restored and exercised sandboxes, for long-lived owners: claiming one costs a request, not a
// restore.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "engine/engine.h"

namespace drupe {

/// Label of sandboxes that wait in a pool. They are their owner's business; listings for people leave them
/// out.
inline constexpr const char* kPoolLabel = "drupe.pool";

struct PoolOptions {
  std::string image;
  std::uint64_t memory_mib = 512;
  double cpus = 1;
  std::uint64_t disk_bytes = 0;  ///< As SandboxOptions::disk_bytes.
  std::uint32_t size = 2;        ///< Sandboxes kept ready, 1..64.
  /// Each is asked to run an inert command this often, so that its memory stays warm and a dead one is
  /// noticed.
  std::chrono::seconds keep_alive{60};
  /// Below this much available memory the pool gives sandboxes back instead of keeping them.
  std::uint64_t least_available_mib = 1024;
  /// Commands run in each before it counts as ready: what the emulator has translated once is fast from then
  /// on.
  std::vector<std::vector<std::string>> exercises = {{"/bin/true"}, {"/bin/true"}};
};

struct PoolStatus {
  std::uint32_t ready = 0;
  std::uint64_t made = 0, claimed = 0, evicted = 0, failed = 0;
  std::string last_error;  ///< Of the last sandbox that could not be made; empty: none.
};

/// Keeps its sandboxes through an engine of its own in a thread of its own; claim() and status() may be
/// called from any thread. Every waiting sandbox is bound to this process: none outlives it, however it ends.
/// Destroying the pool removes those that wait.
class Pool {
 public:
  virtual ~Pool() = default;
  /// Begins to fill; returns at once.
  static Result<std::unique_ptr<Pool>> create(EngineOptions engine, PoolOptions options);

  struct Claim {
    SandboxInfo sandbox;
    std::unique_ptr<ShimClient> client;  ///< Connected, on `engine`'s loop.
  };
  /// Hands out a ready sandbox with the name, environment and main command of `options`, or makes one when
  /// none is ready. kInvalidArgument when image, memory or CPUs are not the pool's. A lease: unless
  /// `options.detached`, the sandbox ends with this process.
  virtual Result<Claim> claim(Engine& engine, const SandboxOptions& options) = 0;
  [[nodiscard]] virtual PoolStatus status() const = 0;
  /// Waits until `count` are ready, at most until `deadline`; false when the deadline came first.
  virtual bool wait_ready(std::uint32_t count, Deadline deadline) = 0;
};

}  // namespace drupe
