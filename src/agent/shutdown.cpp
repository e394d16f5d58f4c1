// Ending the machine in order: the main command first, then everything, then the disk, then the power.
#include <csignal>

#include <fcntl.h>
#include <sys/mount.h>
#include <sys/reboot.h>
#include <unistd.h>

#include "agent/server.h"

namespace drupe::agent {
namespace {

constexpr std::chrono::milliseconds kUnmountTime{20'000};
constexpr std::uint32_t kLongestGraceMs = 24U * 3600 * 1000;

/// Flushes and turns the file system read-only, which leaves a clean journal. Whatever still holds a file
/// open keeps it from that; flushed it is in any case.
Result<std::string> finish_disk(const Work& work) {
  const UniqueFd root(::openat(work.root(), ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  ::syncfs(root.get());
  const UniqueFd context(::fspick(root.get(), "", FSPICK_EMPTY_PATH | FSPICK_CLOEXEC));
  if (::fsconfig(context.get(), FSCONFIG_SET_FLAG, "ro", nullptr, 0) != 0 ||
      ::fsconfig(context.get(), FSCONFIG_CMD_RECONFIGURE, nullptr, nullptr, 0) != 0)
    say("the disk could not be made read-only; it is flushed");
  return std::string();
}

}  // namespace

void Server::shut_down(std::uint32_t id, const ShutdownRequest& request) {
  if (shutting_down_) return reply(id, fail(ErrorCode::kBusy, "The guest is shutting down"));
  shutting_down_ = true;
  shutdown_id_ = id;
  if (ended_) return unmount();
  const auto main = execs_.find("main");
  if (main == execs_.end() || main->second->finished() || request.grace_ms == 0 || quiet_)
    return kill_everything();
  on_main_finished_ = [this] { kill_everything(); };
  grace_timer_ = loop_.after(std::chrono::milliseconds(std::min(request.grace_ms, kLongestGraceMs)), [this] {
    grace_timer_ = 0;
    kill_everything();
  });
  main->second->signal(request.signal, false);
}

void Server::kill_everything() {
  on_main_finished_ = nullptr;
  if (grace_timer_ != 0) loop_.cancel(std::exchange(grace_timer_, 0));
  // The end of the namespaces' init ends every process in them before it is reported.
  cgroups_.kill_work();
  send_signal(work_.init_pidfd(), SIGKILL);
}

void Server::unmount() {
  // The flusher lives in the user's mount namespace: while it does, what was mounted there stays mounted.
  const auto give_up = loop_.after(kUnmountTime, [this] { finish(); });
  flusher_.stop([this, give_up] {
    loop_.cancel(give_up);
    helpers_.run([this] { return finish_disk(work_); }, kUnmountTime,
                 [this](const Result<std::string>& done) {
                   if (!done) say(done.error().message);
                   finish();
                 });
  });
}

void Server::finish() {
  reply(shutdown_id_, std::string());
  control_->when_flushed([] { power_off(); });
}

void power_off() {
  // The machine has no power button that a kernel without the right driver could press, so a reset it is: the
  // hypervisor ends the process at a guest's reset.
  ::reboot(RB_AUTOBOOT);
  ::reboot(RB_POWER_OFF);
}

}  // namespace drupe::agent
