#include "agent/freezer.h"

#include <sys/epoll.h>

namespace drupe::agent {

Freezer::~Freezer() {
  stop_waiting();
}

void Freezer::freeze(std::chrono::milliseconds deadline, Done done) {
  if (state_ == State::kUndoing && !next_) {
    next_ = [this, deadline, done = std::move(done)]() mutable { freeze(deadline, std::move(done)); };
    return;
  }
  if (state_ != State::kIdle) return done(fail(ErrorCode::kBusy, "An earlier freeze is not over"));
  done_ = std::move(done);
  state_ = State::kFreezingWork;
  timer_ = loop_.after(deadline, [this] {
    timer_ = 0;
    const char* what =
        state_ == State::kFreezingWork ? "stopping the processes" : "flushing the file systems";
    undo(Error{ErrorCode::kTimeout,
               std::string("The guest was not quiet in time: ") + what + " took too long",
               "Try again with a longer deadline, or when less is being written", 0});
  });
  if (auto asked = cgroups_.set_frozen(true); !asked) return undo(std::move(asked).error());
  auto watched = loop_.watch(cgroups_.events_fd(), EPOLLPRI, [this](std::uint32_t) { work_changed(); });
  if (!watched) return undo(std::move(watched).error());
  work_changed();
}

void Freezer::work_changed() {
  if (state_ != State::kFreezingWork || !cgroups_.frozen()) return;
  loop_.unwatch(cgroups_.events_fd());
  state_ = State::kFlushing;
  if (auto asked = flusher_.flush([this](bool flushed) { on_flushed(flushed); }); !asked)
    undo(std::move(asked).error());
}

void Freezer::on_flushed(bool flushed) {
  if (state_ == State::kFlushing) {
    if (flushed) return succeed();
    return undo(Error{ErrorCode::kGuest, "The helper that flushes the file systems was killed", {}, 0});
  }
  state_ = State::kIdle;
  if (next_) std::exchange(next_, nullptr)();
}

void Freezer::succeed() {
  stop_waiting();
  state_ = State::kFrozen;
  std::exchange(done_, nullptr)({});
}

void Freezer::undo(Error error) {
  stop_waiting();
  // A flush that goes on is waited for; it harms nobody.
  state_ = state_ == State::kFlushing && flusher_.busy() ? State::kUndoing : State::kIdle;
  [[maybe_unused]] const auto thawed = cgroups_.set_frozen(false);
  if (done_) std::exchange(done_, nullptr)(std::unexpected(std::move(error)));
}

void Freezer::stop_waiting() {
  if (timer_ != 0) loop_.cancel(std::exchange(timer_, 0));
  loop_.unwatch(cgroups_.events_fd());
}

Status Freezer::thaw() {
  if (state_ != State::kFrozen) return {};
  state_ = State::kIdle;
  return cgroups_.set_frozen(false);
}

}  // namespace drupe::agent
