#include "agent/freezer.h"

#include <algorithm>
#include <cerrno>
#include <vector>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "agent/launch.h"
#include "agent/mounts.h"

namespace drupe::agent {
namespace {

constexpr char kFlushed = 's';

void answer(int fd, char code) {
  [[maybe_unused]] const ssize_t put = ::write(fd, &code, 1);
}

[[noreturn]] void flush_filesystems(const Work& work, int answers) {
  reset_process();
  // Inner file systems first: one on a loop device writes to the root.
  std::vector<UniqueFd> all = open_disk_mounts(work);
  UniqueFd root(::openat(work.root(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  all.push_back(std::move(root));
  for (const auto& one : all) ::syncfs(one.get());
  answer(answers, kFlushed);
  ::_exit(0);
}

}  // namespace

Freezer::~Freezer() {
  stop_waiting();
  loop_.unwatch(answers_.get());
}

Status Freezer::start_child() {
  DRUPE_ASSIGN(Pipe answers, make_pipe());
  const pid_t pid = work_.clone(ChildNamespace::kAgent, -1, &child_);
  if (pid < 0) return fail_sys("Starting a helper failed", errno);
  if (pid == 0) {
    answers.read.reset();
    flush_filesystems(work_, answers.write.get());
  }
  answers_ = std::move(answers.read);
  return loop_.watch(answers_.get(), EPOLLIN, [this](std::uint32_t) { on_child(); });
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
  if (auto started = start_child(); !started) undo(std::move(started).error());
}

void Freezer::on_child() {
  char code = 0;
  const ssize_t got = ::read(answers_.get(), &code, 1);
  if (got < 0 && errno == EINTR) return;
  if (got != 1) return child_gone();
  if (code != kFlushed || state_ != State::kFlushing) return;
  // Its end runs here, not in every machine that is restored from the save.
  end_child();
  succeed();
}

void Freezer::succeed() {
  stop_waiting();
  state_ = State::kFrozen;
  std::exchange(done_, nullptr)({});
}

void Freezer::undo(Error error) {
  stop_waiting();
  // A child that still flushes is waited for; what it does harms nobody.
  state_ = child_.valid() ? State::kUndoing : State::kIdle;
  [[maybe_unused]] const auto thawed = cgroups_.set_frozen(false);
  if (done_) std::exchange(done_, nullptr)(std::unexpected(std::move(error)));
}

void Freezer::stop_waiting() {
  if (timer_ != 0) loop_.cancel(std::exchange(timer_, 0));
  loop_.unwatch(cgroups_.events_fd());
}

void Freezer::end_child() {
  loop_.unwatch(answers_.get());
  answers_.reset();
  reap(child_.get());
  child_.reset();
}

/// The child has ended without having flushed, or after an undo.
void Freezer::child_gone() {
  end_child();
  if (state_ == State::kFlushing)
    undo(Error{ErrorCode::kGuest, "The helper that flushes the file systems was killed", {}, 0});
  state_ = State::kIdle;
  if (next_) std::exchange(next_, nullptr)();
}

Status Freezer::thaw() {
  if (state_ != State::kFrozen) return {};
  state_ = State::kIdle;
  return cgroups_.set_frozen(false);
}

}  // namespace drupe::agent
