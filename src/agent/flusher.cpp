#include "agent/flusher.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <utility>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/prctl.h>
#include <unistd.h>

#include "agent/launch.h"
#include "agent/mounts.h"

namespace drupe::agent {
namespace {

constexpr char kFlush = 'f';

/// What a disk does not take stays in memory, which is saved as well.
void flush_all(DiskMounts& mounts, int root) {
  for (const auto& one : mounts.open_all()) ::syncfs(one.get());
  ::syncfs(root);
}

/// Not one descriptor of the agent's stays open for as long as the machine lives.
void close_others(std::array<int, 4> kept) {
  std::sort(kept.begin(), kept.end());
  int next = STDERR_FILENO + 1;
  for (const int fd : kept) {
    if (fd > next) ::close_range(static_cast<unsigned>(next), static_cast<unsigned>(fd - 1), 0);
    next = fd + 1;
  }
  ::close_range(static_cast<unsigned>(next), ~0U, 0);
}

[[noreturn]] void serve(const Work& work, int orders, int answers) {
  reset_process();
  ::prctl(PR_SET_NAME, "flush");
  UniqueFd root(::openat(work.root(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  auto mounts = DiskMounts::enter(work);
  if (!mounts || !root.valid()) ::_exit(1);
  close_others({orders, answers, root.get(), mounts->table()});
  char order = 0;
  while (::read(orders, &order, 1) == 1) {
    flush_all(*mounts, root.get());
    if (::write(answers, &order, 1) != 1) break;
  }
  ::_exit(0);
}

}  // namespace

Flusher::~Flusher() {
  loop_.unwatch(answers_.get());
  loop_.unwatch(child_.get());
}

Status Flusher::start() {
  if (child_.valid()) return {};
  DRUPE_ASSIGN(Pipe orders, make_pipe());
  DRUPE_ASSIGN(Pipe answers, make_pipe());
  const pid_t pid = work_.clone(ChildNamespace::kAgent, -1, &child_);
  if (pid < 0) return fail_sys("Starting a helper failed", errno);
  if (pid == 0) serve(work_, orders.read.get(), answers.write.get());
  orders_ = std::move(orders.write);
  answers_ = std::move(answers.read);
  DRUPE_TRY(loop_.watch(answers_.get(), EPOLLIN, [this](std::uint32_t) { on_answer(); }));
  return loop_.watch(child_.get(), EPOLLIN, [this](std::uint32_t) { on_end(); });
}

Status Flusher::flush(Done done) {
  if (busy()) {
    next_.push_back(std::move(done));
    return {};
  }
  return order(std::move(done));
}

Status Flusher::order(Done done) {
  DRUPE_TRY(start());
  if (::write(orders_.get(), &kFlush, 1) != 1) return fail_sys("Asking for a flush failed", errno);
  done_ = std::move(done);
  return {};
}

void Flusher::stop(std::function<void()> gone) {
  if (!child_.valid()) return gone();
  gone_ = std::move(gone);
  send_signal(child_.get(), SIGKILL);
}

void Flusher::finish(bool flushed) {
  if (!done_) return;
  const Done done = std::exchange(done_, nullptr);
  auto waiting = std::exchange(next_, {});
  // One flush is enough for all that wait for one that begins now.
  if (!waiting.empty() && !gone_) {
    const auto tell_all = [waiting](bool good) {
      for (const Done& one : waiting) one(good);
    };
    if (!order(tell_all)) tell_all(false);
  }
  done(flushed);
}

void Flusher::on_answer() {
  char answer = 0;
  const ssize_t got = ::read(answers_.get(), &answer, 1);
  if (got < 0 && errno == EINTR) return;
  if (got == 1) {
    finish(true);
    return;
  }
  loop_.unwatch(answers_.get());
}

void Flusher::on_end() {
  loop_.unwatch(answers_.get());
  loop_.unwatch(child_.get());
  reap(child_.get());
  child_.reset();
  orders_.reset();
  answers_.reset();
  finish(false);
  if (gone_) std::exchange(gone_, nullptr)();
}

}  // namespace drupe::agent
