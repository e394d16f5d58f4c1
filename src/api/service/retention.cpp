#include "api/service/retention.h"

#include "base/log.h"

namespace drupe::api {

Retention::Retention(Sandboxes& sandboxes) : sandboxes_(sandboxes), thread_([this] { work(); }) {}

Retention::~Retention() {
  {
    const std::scoped_lock lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void Retention::work() {
  std::unique_lock lock(mutex_);
  while (!ending_) {
    lock.unlock();
    const auto wait = sandboxes_.end_overdue();
    if (!wait)
      log(LogLevel::kWarning, "Sandboxes whose time is over could not all be ended: " + wait.error().message);
    lock.lock();
    wake_.wait_for(lock, wait.value_or(std::chrono::seconds(10)), [this] { return ending_; });
  }
}

}  // namespace drupe::api
