// Ctrl-C during a long blocking operation: the first asks it to stop, the second ends the program.
#pragma once

#include <atomic>

#include <signal.h>

namespace drupe::cli {

/// While it lives, SIGINT, SIGTERM and SIGHUP set flag(); a second one acts as usual. One at a time.
class CancelScope {
 public:
  CancelScope();
  ~CancelScope();
  CancelScope(const CancelScope&) = delete;
  CancelScope& operator=(const CancelScope&) = delete;

  [[nodiscard]] static const std::atomic<bool>* flag();
  /// Exit status for an operation that was stopped by the signal that came; 0 when none came.
  [[nodiscard]] static int status();

 private:
  struct sigaction before_[3];
};

}  // namespace drupe::cli
