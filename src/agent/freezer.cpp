#include "agent/freezer.h"

#include <algorithm>
#include <cerrno>
#include <vector>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/ioctl.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include "agent/launch.h"
#include "agent/mounts.h"

namespace drupe::agent {
namespace {

// From <linux/fs.h>, which cannot be included beside <sys/mount.h>.
constexpr unsigned long kFreezeFileSystem = _IOWR('X', 119, int);
constexpr unsigned long kThawFileSystem = _IOWR('X', 120, int);

constexpr char kFlushed = 's', kFreeze = 'f', kFrozen = 'F', kThaw = 't', kThawed = 'T', kFailed = 'e';

char read_command(int fd) {
  char command = 0;
  ssize_t got = 0;
  do got = ::read(fd, &command, 1);
  while (got < 0 && errno == EINTR);
  return got == 1 ? command : kThaw;  // a dead agent means thaw
}

void answer(int fd, char code) {
  [[maybe_unused]] const ssize_t put = ::write(fd, &code, 1);
}

/// The child: flush, then freeze on command, then thaw on command.
[[noreturn]] void hold_filesystems(const Work& work, int commands, int answers) {
  reset_process();
  // Inner file systems first: one on a loop device writes to the root.
  std::vector<UniqueFd> all = open_disk_mounts(work);
  UniqueFd root(::openat(work.root(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  all.push_back(std::move(root));
  for (const auto& one : all) ::syncfs(one.get());
  answer(answers, kFlushed);
  if (read_command(commands) != kFreeze) ::_exit(0);
  std::size_t frozen = 0;
  while (frozen < all.size() && ::ioctl(all[frozen].get(), kFreezeFileSystem, 0) == 0) ++frozen;
  answer(answers, frozen == all.size() ? kFrozen : kFailed);
  if (frozen == all.size()) read_command(commands);
  while (frozen > 0) ::ioctl(all[--frozen].get(), kThawFileSystem, 0);
  answer(answers, kThawed);
  ::_exit(0);
}

}  // namespace

Freezer::~Freezer() {
  stop_waiting();
  loop_.unwatch(answers_.get());
}

Status Freezer::start_child() {
  DRUPE_ASSIGN(Pipe commands, make_pipe());
  DRUPE_ASSIGN(Pipe answers, make_pipe());
  const pid_t pid = work_.clone(ChildNamespace::kAgent, -1, &child_);
  if (pid < 0) return fail_sys("Starting a helper failed", errno);
  if (pid == 0) {
    commands.write.reset();
    answers.read.reset();
    hold_filesystems(work_, commands.read.get(), answers.write.get());
  }
  commands_ = std::move(commands.write);
  answers_ = std::move(answers.read);
  return loop_.watch(answers_.get(), EPOLLIN, [this](std::uint32_t events) { on_child(events); });
}

void Freezer::freeze(std::chrono::milliseconds deadline, Done done) {
  if (state_ != State::kIdle) return done(fail(ErrorCode::kBusy, "An earlier freeze is not over"));
  if (auto started = start_child(); !started) return done(std::move(started));
  done_ = std::move(done);
  state_ = State::kFlushing;
  timer_ = loop_.after(deadline, [this] {
    timer_ = 0;
    const char* what = state_ == State::kFlushing       ? "flushing the file systems"
                       : state_ == State::kFreezingWork ? "stopping the processes"
                                                        : "freezing the file systems";
    undo(Error{ErrorCode::kTimeout,
               std::string("The guest was not quiet in time: ") + what + " took too long",
               "Try again with a longer deadline, or when less is being written", 0});
  });
}

void Freezer::on_child(std::uint32_t) {
  char code = 0;
  const ssize_t got = ::read(answers_.get(), &code, 1);
  if (got < 0 && errno == EINTR) return;
  if (got != 1) return child_gone();
  if (code == kFlushed && state_ == State::kFlushing) {
    state_ = State::kFreezingWork;
    const auto asked = cgroups_.set_frozen(true);
    if (!asked) return undo(asked.error());
    auto watched = loop_.watch(cgroups_.events_fd(), EPOLLPRI, [this](std::uint32_t) { work_changed(); });
    if (!watched) return undo(std::move(watched).error());
    work_changed();
  } else if (code == kFrozen && state_ == State::kFreezingFiles) {
    succeed();
  } else if (code == kFailed && state_ == State::kFreezingFiles) {
    undo(Error{ErrorCode::kGuest, "A file system of the guest cannot be frozen",
               "See whether the guest froze it itself", 0});
  }
}

void Freezer::work_changed() {
  if (state_ != State::kFreezingWork || !cgroups_.frozen()) return;
  loop_.unwatch(cgroups_.events_fd());
  state_ = State::kFreezingFiles;
  tell(kFreeze);
}

void Freezer::succeed() {
  stop_waiting();
  state_ = State::kFrozen;
  std::exchange(done_, nullptr)({});
}

void Freezer::undo(Error error) {
  stop_waiting();
  state_ = State::kUndoing;
  [[maybe_unused]] const auto thawed = cgroups_.set_frozen(false);
  commands_.reset();  // the child thaws what it has frozen, or will have
  if (done_) std::exchange(done_, nullptr)(std::unexpected(std::move(error)));
}

void Freezer::stop_waiting() {
  if (timer_ != 0) loop_.cancel(std::exchange(timer_, 0));
  loop_.unwatch(cgroups_.events_fd());
}

void Freezer::tell(char command) {
  [[maybe_unused]] const ssize_t put = ::write(commands_.get(), &command, 1);
}

/// The child has ended: after a thaw or an undo, or because something killed it.
void Freezer::child_gone() {
  loop_.unwatch(answers_.get());
  answers_.reset();
  commands_.reset();
  reap(child_.get());
  child_.reset();
  const State before = std::exchange(state_, State::kIdle);
  if (before == State::kThawingFiles) {
    state_ = State::kWorkFrozen;
    std::exchange(done_, nullptr)({});
  } else if (before == State::kFrozen) {
    state_ = State::kWorkFrozen;
  } else if (before != State::kUndoing) {
    state_ = before;
    undo(Error{ErrorCode::kGuest, "The helper that freezes the file systems was killed", {}, 0});
    state_ = State::kIdle;
  }
}

void Freezer::thaw_filesystems(Done done) {
  if (state_ != State::kFrozen) return done({});
  state_ = State::kThawingFiles;
  done_ = std::move(done);
  tell(kThaw);
}

Status Freezer::thaw_work() {
  if (state_ != State::kWorkFrozen) return {};
  state_ = State::kIdle;
  return cgroups_.set_frozen(false);
}

}  // namespace drupe::agent
