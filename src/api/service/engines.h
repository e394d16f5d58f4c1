// Engines for many threads: each is used by one at a time, and waits here between.
#pragma once

#include <deque>
#include <memory>
#include <mutex>

#include "engine/engine.h"

namespace drupe::api {

/// Callable from any thread.
class Engines {
 public:
  explicit Engines(EngineOptions options) : options_(std::move(options)) {}

  /// One engine for one thread, until it is destroyed.
  class Lease {
   public:
    Lease(Engines& owner, std::unique_ptr<Engine> engine) : owner_(&owner), engine_(std::move(engine)) {}
    Lease(Lease&&) noexcept = default;
    Lease& operator=(Lease&&) = delete;
    ~Lease() {
      if (engine_) owner_->give_back(std::move(engine_));
    }
    Engine* operator->() const { return engine_.get(); }
    Engine& operator*() const { return *engine_; }

   private:
    Engines* owner_;
    std::unique_ptr<Engine> engine_;
  };
  /// The one that has waited longest, so that each comes to collect the shims it started that have ended; a
  /// new one when none waits.
  Result<Lease> lease();

 private:
  void give_back(std::unique_ptr<Engine> engine);

  const EngineOptions options_;
  std::mutex mutex_;
  std::deque<std::unique_ptr<Engine>> waiting_;  ///< Under mutex_.
};

}  // namespace drupe::api
