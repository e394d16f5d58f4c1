// A drupe-shim as the engine starts it, in a directory of its own, with a real guest. For tests and
// benchmarks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "base/event_loop.h"
#include "base/spawn.h"
#include "shim/client.h"
#include "shim/record.h"
#include "shim/spec.h"

namespace drupe::testing {

/// Files that every sandbox of a test needs, found or made once.
struct GuestAssets {
  std::string guest_dir;   ///< $DRUPE_GUEST_DIR, else <binaries>/../guest.
  std::string binary_dir;  ///< Where the test program lies, with drupe-shim and libdrupe-ram.so.
  std::string disk;        ///< $DRUPE_TEST_DISK, else <binaries>/../busybox.ext4 (tests/busybox-disk.sh).
  /// Why no guest can run here; empty: one can.
  static std::string unavailable();
  static const GuestAssets& get();
};

/// A sandbox's directory. Removed at the end, with its shim.
class ShimProcess {
 public:
  /// An empty directory with the links that every sandbox needs and a record with image and shape.
  static Result<std::unique_ptr<ShimProcess>> create(EventLoop& loop);
  ~ShimProcess();

  /// Starts the shim and waits for its report.
  Result<ShimStatus> start(LaunchMode mode);
  /// Waits until it has ended and returns its wait status.
  Result<int> wait();
  void kill(int signal);
  Result<std::unique_ptr<ShimClient>> connect();
  /// Runs a shell line in the sandbox.
  Result<ExecResult> shell(ShimClient& client, const std::string& line);
  /// Links a file of another sandbox's directory.
  Status link_from(const ShimProcess& other, const std::string& name);
  /// Makes this directory start from `base`, a directory in which kMakeBase has run.
  Status use_base(const ShimProcess& base);
  [[nodiscard]] bool alive() const;
  [[nodiscard]] bool has(const std::string& name) const;

  SandboxRecord record;  ///< Written by start().
  ShimSpec spec;
  [[nodiscard]] int dir() const { return dir_.get(); }
  [[nodiscard]] const std::string& path() const { return path_; }
  [[nodiscard]] int pid() const { return child_.pid; }
  Result<SandboxRecord> read() const { return read_record(dir_.get()); }

 private:
  explicit ShimProcess(EventLoop& loop) : loop_(loop) {}

  EventLoop& loop_;
  std::string path_;
  UniqueFd dir_;
  ChildProcess child_;
  bool running_ = false;
};

}  // namespace drupe::testing
