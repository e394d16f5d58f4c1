#include "api/service/loop_thread.h"

#include <cerrno>

#include <pthread.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include "base/log.h"

namespace drupe::api {

Result<std::unique_ptr<LoopThread>> LoopThread::start(const char* name) {
  DRUPE_ASSIGN(auto loop, EventLoop::create());
  UniqueFd wake(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  if (!wake.valid()) return fail_sys("Creating an event descriptor failed", errno);
  std::unique_ptr<LoopThread> self(new LoopThread(std::move(loop), std::move(wake)));
  DRUPE_TRY(self->loop_->watch(self->wake_.get(), EPOLLIN,
                               [raw = self.get()](std::uint32_t) { raw->run_posted(); }));
  self->thread_ = std::thread([raw = self.get(), name] {
    ::pthread_setname_np(::pthread_self(), name);
    if (auto ran = raw->loop_->run(); !ran) log(LogLevel::kError, ran.error().message);
  });
  return self;
}

LoopThread::~LoopThread() {
  post([this] { loop_->stop(); });
  thread_.join();
}

void LoopThread::post(Call call) {
  {
    const std::scoped_lock lock(mutex_);
    posted_.push_back(std::move(call));
  }
  const std::uint64_t one = 1;
  static_cast<void>(!::write(wake_.get(), &one, sizeof one));
}

void LoopThread::run_posted() {
  std::uint64_t count = 0;
  static_cast<void>(!::read(wake_.get(), &count, sizeof count));
  std::deque<Call> calls;
  {
    const std::scoped_lock lock(mutex_);
    calls.swap(posted_);
  }
  for (const Call& call : calls) call();
}

}  // namespace drupe::api
