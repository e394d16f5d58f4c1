#include "base/event_loop.h"

#include <algorithm>
#include <array>
#include <cerrno>

#include <sys/epoll.h>

namespace drupe {
namespace {

constexpr int kMaxEvents = 64;

// The generation in the upper half tells a descriptor number that was closed and reused from the one that was
// watched.
std::uint64_t tag(int fd, std::uint64_t generation) {
  return (generation << 32) | static_cast<std::uint32_t>(fd);
}

int wait_ms(Deadline deadline) {
  if (deadline == Deadline::max()) return -1;
  const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

}  // namespace

Result<std::unique_ptr<EventLoop>> EventLoop::create() {
  UniqueFd epoll(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll.valid()) return fail_sys("Creating an epoll set failed", errno);
  return std::unique_ptr<EventLoop>(new EventLoop(std::move(epoll)));
}

Status EventLoop::watch(int fd, std::uint32_t events, OnReady on_ready) {
  const std::uint64_t generation = next_generation_++ & 0xffffffffU;
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag(fd, generation);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    return fail_sys("Watching a descriptor failed", errno);
  watches_[fd] = Watch{generation, std::make_shared<OnReady>(std::move(on_ready))};
  return {};
}

Status EventLoop::modify(int fd, std::uint32_t events) {
  const auto found = watches_.find(fd);
  if (found == watches_.end()) return fail(ErrorCode::kHost, "A descriptor that is not watched was modified");
  epoll_event event{};
  event.events = events;
  event.data.u64 = tag(fd, found->second.generation);
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event) != 0)
    return fail_sys("Changing a watch failed", errno);
  return {};
}

void EventLoop::unwatch(int fd) {
  if (watches_.erase(fd) == 0) return;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

EventLoop::TimerId EventLoop::after(std::chrono::milliseconds delay, std::function<void()> on_fire) {
  const TimerId id = next_timer_++;
  timers_.emplace(Clock::now() + delay, Timer{id, std::move(on_fire)});
  return id;
}

void EventLoop::cancel(TimerId id) {
  for (auto it = timers_.begin(); it != timers_.end(); ++it) {
    if (it->second.id != id) continue;
    timers_.erase(it);
    return;
  }
}

void EventLoop::defer(std::function<void()> call) {
  deferred_.push_back(std::move(call));
}

void EventLoop::fire_timers() {
  const auto now = Clock::now();
  while (!timers_.empty() && timers_.begin()->first <= now) {
    auto on_fire = std::move(timers_.begin()->second.on_fire);
    timers_.erase(timers_.begin());
    on_fire();
  }
}

void EventLoop::run_deferred() {
  // One at a time: a call may run the loop nested, and the calls behind it must not wait for that.
  while (!deferred_.empty()) {
    const auto call = std::move(deferred_.front());
    deferred_.pop_front();
    call();
  }
}

Status EventLoop::run_once(Deadline deadline) {
  // A deferred call may have been what the caller waits for, so after one there is no waiting.
  if (!deferred_.empty()) deadline = Clock::now();
  run_deferred();
  if (!timers_.empty()) deadline = std::min(deadline, timers_.begin()->first);
  std::array<epoll_event, kMaxEvents> events{};
  const int count = ::epoll_wait(epoll_.get(), events.data(), kMaxEvents, wait_ms(deadline));
  if (count < 0 && errno != EINTR) return fail_sys("Waiting for events failed", errno);
  for (int i = 0; i < count; ++i) {
    const auto& event = events[static_cast<std::size_t>(i)];
    const auto found = watches_.find(static_cast<int>(event.data.u64 & 0xffffffffU));
    if (found == watches_.end() || found->second.generation != event.data.u64 >> 32) continue;
    const auto on_ready = found->second.on_ready;  // survives an unwatch() from inside the callback
    (*on_ready)(event.events);
  }
  fire_timers();
  run_deferred();
  return {};
}

Status EventLoop::run() {
  stopped_ = false;
  while (!stopped_) DRUPE_TRY(run_once(Deadline::max()));
  return {};
}

Result<bool> EventLoop::run_until(const std::function<bool()>& done, Deadline deadline) {
  while (!done()) {
    if (Clock::now() >= deadline) return false;
    DRUPE_TRY(run_once(deadline));
  }
  return true;
}

}  // namespace drupe
