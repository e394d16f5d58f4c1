// Ends sandboxes whose time is over, in a thread of its own.
#pragma once

#include <condition_variable>
#include <mutex>
#include <thread>

#include "api/service/sandboxes.h"

namespace drupe::api {

/// What is due is decided by the times that rows and records have, so a restart changes nothing. Ends with
/// its destruction.
class Retention {
 public:
  explicit Retention(Sandboxes& sandboxes);
  ~Retention();
  Retention(const Retention&) = delete;
  Retention& operator=(const Retention&) = delete;

 private:
  void work();

  Sandboxes& sandboxes_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool ending_ = false;  ///< Under mutex_.
  std::thread thread_;
};

}  // namespace drupe::api
