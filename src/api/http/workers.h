// Threads that work on requests: made when all are busy, gone when they have been idle for a while.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

namespace drupe::api {

class Workers {
 public:
  explicit Workers(std::size_t most) : most_(most) {}
  /// Waits for what was begun; what is queued is dropped.
  ~Workers();
  Workers(const Workers&) = delete;
  Workers& operator=(const Workers&) = delete;

  using Task = std::move_only_function<void()>;
  /// False when all threads are busy and `most` exist: nothing was taken. Any thread.
  [[nodiscard]] bool submit(Task& task);
  /// Whether a task is waiting for a thread.
  [[nodiscard]] bool waiting() const;
  /// How many threads work on something.
  [[nodiscard]] std::size_t busy() const;

 private:
  void work();

  const std::size_t most_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, ended_;
  std::deque<Task> tasks_;
  std::size_t threads_ = 0, idle_ = 0;
  bool stopping_ = false;
};

}  // namespace drupe::api
