#include "api/http/workers.h"

#include <chrono>

#include <pthread.h>

namespace drupe::api {
namespace {

constexpr std::chrono::seconds kIdleLife{30};
constexpr std::size_t kKept = 2;

}  // namespace

Workers::~Workers() {
  std::unique_lock lock(mutex_);
  stopping_ = true;
  tasks_.clear();
  wake_.notify_all();
  ended_.wait(lock, [this] { return threads_ == 0; });
}

bool Workers::submit(Task& task) {
  const std::scoped_lock lock(mutex_);
  if (stopping_) return false;
  if (tasks_.size() >= idle_) {
    if (threads_ == most_) return false;
    ++threads_;
    std::thread([this] { work(); }).detach();  // counted by threads_, which the destructor waits for
    ++idle_;
  }
  tasks_.push_back(std::move(task));
  wake_.notify_one();
  return true;
}

bool Workers::waiting() const {
  const std::scoped_lock lock(mutex_);
  return !tasks_.empty();
}

std::size_t Workers::busy() const {
  const std::scoped_lock lock(mutex_);
  return threads_ - idle_;
}

void Workers::work() {
  ::pthread_setname_np(::pthread_self(), "worker");
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    if (tasks_.empty()) {
      wake_.wait_for(lock, kIdleLife);
      if (tasks_.empty() && !stopping_ && idle_ > kKept) break;
      continue;
    }
    Task task = std::move(tasks_.front());
    tasks_.pop_front();
    --idle_;
    lock.unlock();
    task();
    task = nullptr;
    lock.lock();
    ++idle_;
  }
  --idle_;
  --threads_;
  // Notified under the lock: the destructor may end this object as soon as it is given back.
  ended_.notify_all();
}

}  // namespace drupe::api
