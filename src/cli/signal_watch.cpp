#include "cli/signal_watch.h"

#include <cerrno>

#include <sys/epoll.h>
#include <sys/signalfd.h>
#include <unistd.h>

namespace drupe::cli {

Result<std::unique_ptr<SignalWatch>> SignalWatch::create(EventLoop& loop, std::initializer_list<int> signals,
                                                         std::function<void(int)> on_signal) {
  sigset_t set;
  sigset_t before;
  ::sigemptyset(&set);
  for (const int number : signals) ::sigaddset(&set, number);
  UniqueFd fd(::signalfd(-1, &set, SFD_CLOEXEC | SFD_NONBLOCK));
  if (!fd.valid()) return fail_errno(ErrorCode::kHost, "Preparing to receive signals failed", errno);
  ::pthread_sigmask(SIG_BLOCK, &set, &before);
  const int raw = fd.get();
  std::unique_ptr<SignalWatch> watch(new SignalWatch(loop, std::move(fd), before));
  DRUPE_TRY(loop.watch(raw, EPOLLIN, [raw, call = std::move(on_signal)](std::uint32_t) {
    signalfd_siginfo info{};
    while (::read(raw, &info, sizeof info) == static_cast<long>(sizeof info))
      call(static_cast<int>(info.ssi_signo));
  }));
  return watch;
}

SignalWatch::~SignalWatch() {
  loop_.unwatch(fd_.get());
  ::pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

}  // namespace drupe::cli
