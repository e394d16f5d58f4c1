#include "agent/helper.h"

#include <cerrno>
#include <csignal>

#include <sys/epoll.h>
#include <unistd.h>

#include "agent/launch.h"
#include "protocol/messages.h"

namespace drupe::agent {
namespace {

constexpr std::size_t kMaxAnswer = 128 * 1024;

}  // namespace

Helpers::~Helpers() {
  for (auto& [id, helper] : running_) {
    loop_.unwatch(helper.pidfd.get());
    loop_.unwatch(helper.answer.get());
    if (helper.timer != 0) loop_.cancel(helper.timer);
  }
}

void Helpers::run(Body body, std::chrono::milliseconds deadline, Done done) {
  auto pipe = make_pipe();
  if (!pipe) return done(std::unexpected(std::move(pipe).error()));
  Helper helper;
  const pid_t pid = work_.clone(ChildNamespace::kAgent, -1, &helper.pidfd);
  if (pid < 0) return done(fail_sys("Starting a helper failed", errno));
  if (pid == 0) {
    reset_process();
    const auto value = body();
    const std::string answer = value ? encode_reply(*value) : encode_error_reply(value.error());
    [[maybe_unused]] const auto told = write_all(pipe->write.get(), answer);
    ::_exit(0);
  }
  const std::uint64_t id = next_++;
  helper.answer = std::move(pipe->read);
  helper.done = std::move(done);
  if (deadline.count() != 0) {
    helper.timer = loop_.after(deadline, [this, id] {
      auto& late = running_.at(id);
      late.timer = 0;
      send_signal(late.pidfd.get(), SIGKILL);
      finish(late, fail(ErrorCode::kTimeout, "The guest did not finish in time"));
    });
  }
  auto watched = loop_.watch(helper.answer.get(), EPOLLIN, [this, id](std::uint32_t) { on_answer(id); });
  if (watched) watched = loop_.watch(helper.pidfd.get(), EPOLLIN, [this, id](std::uint32_t) { on_end(id); });
  running_.emplace(id, std::move(helper));
}

void Helpers::on_answer(std::uint64_t id) {
  auto& helper = running_.at(id);
  std::array<char, 16384> bytes;
  const ssize_t got = ::read(helper.answer.get(), bytes.data(), bytes.size());
  if (got < 0 && errno == EINTR) return;
  if (got > 0 && helper.bytes.size() < kMaxAnswer) {
    helper.bytes.append(bytes.data(), static_cast<std::size_t>(got));
    return;
  }
  loop_.unwatch(helper.answer.get());
  helper.answer.reset();
  auto value = helper.bytes.empty()
                   ? Result<std::string>(fail(ErrorCode::kGuest, "A helper in the guest was killed"))
                   : decode_reply(as_bytes(helper.bytes));
  finish(helper, std::move(value));
}

void Helpers::on_end(std::uint64_t id) {
  auto& helper = running_.at(id);
  if (helper.answer.valid()) {
    // The answer's end comes with the child's; it is read first.
    while (helper.answer.valid()) on_answer(id);
  }
  reap(helper.pidfd.get());
  loop_.unwatch(helper.pidfd.get());
  running_.erase(id);
}

void Helpers::finish(Helper& helper, Result<std::string> value) {
  if (helper.timer != 0) loop_.cancel(std::exchange(helper.timer, 0));
  if (helper.done) std::exchange(helper.done, nullptr)(std::move(value));
}

}  // namespace drupe::agent
