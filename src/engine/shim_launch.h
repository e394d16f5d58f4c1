// Starting drupe-shim in a prepared sandbox directory and hearing how it went.
#pragma once

#include <optional>
#include <vector>

#include "base/spawn.h"
#include "engine/guest_assets.h"
#include "shim/spec.h"

namespace drupe {

/// Standard error of the shim, in the sandbox's directory.
inline constexpr const char* kShimLogFile = "shim.log";

/// A shim between its start and its status. Destroying it leaves the process alone.
class StartingShim {
 public:
  /// `dir` and `lock` are borrowed; the shim gets copies, so closing them afterwards leaves the lock with it.
  /// `fork`, borrowed too: the reading end of the pipe of ShimSpec::awaits_fork.
  static Result<StartingShim> start(const Installation& installation, int dir, int lock, const ShimSpec& spec,
                                    int fork = -1);

  /// To poll for POLLIN.
  [[nodiscard]] int status_fd() const { return status_.get(); }
  /// Reads what is there; a value when the status is complete or the shim has died.
  std::optional<Result<ShimStatus>> advance();
  /// Waits for the status. At the deadline the shim is killed.
  Result<ShimStatus> finish();
  [[nodiscard]] Deadline deadline() const { return deadline_; }
  /// The time until the deadline starts anew.
  void begin_now() { deadline_ = Clock::now() + limit_; }
  /// Kills the shim (its hypervisor goes with it) and reaps it.
  void kill();
  /// The process, to be reaped when it ends.
  [[nodiscard]] ChildProcess take_child() { return std::move(child_); }

 private:
  StartingShim(ChildProcess child, UniqueFd status, UniqueFd dir, std::chrono::milliseconds limit)
      : child_(std::move(child)), status_(std::move(status)), dir_(std::move(dir)), limit_(limit) {
    begin_now();
  }
  Result<ShimStatus> died() const;

  ChildProcess child_;
  UniqueFd status_;
  UniqueFd dir_;
  std::chrono::milliseconds limit_;
  Deadline deadline_;
  std::string bytes_;
};

}  // namespace drupe
