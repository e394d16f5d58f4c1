#include "hypervisor/qemu/machine.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <csignal>
#include <thread>
#include <utility>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/files.h"
#include "base/pass_fds.h"
#include "hypervisor/qemu/command.h"
#include "hypervisor/qemu/launch.h"

namespace drupe {
namespace {

constexpr std::chrono::seconds kLastWords{2};
// Nobody tells when a process has stopped. It takes some microseconds, or as long as a write of its own.
constexpr std::chrono::microseconds kHoldPoll{50};
constexpr std::chrono::seconds kHoldLimit{2};
constexpr std::size_t kMaxDeviceState = 32U << 20;
constexpr std::uint64_t kStateFdset = 1000;
constexpr std::size_t kTailInErrors = 2048;

struct RamReport {
  std::uint64_t address;
  std::uint64_t length;
};

std::string last_line_with(const std::string& text, std::string_view words) {
  const auto at = text.rfind(words);
  if (at == std::string::npos) return {};
  const auto end = text.find_first_of("\r\n", at);
  return text.substr(at, std::min(end == std::string::npos ? text.size() - at : end - at, std::size_t{200}));
}

std::string trimmed(std::string text) {
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r' || text.back() == ' ')) text.pop_back();
  return text;
}

}  // namespace

QemuMachine::QemuMachine(EventLoop& loop, QemuParts parts) : loop_(loop), parts_(std::move(parts)) {
  qmp_ = std::make_unique<QmpClient>(loop_, std::move(parts_.qmp),
                                     [this](const QmpMessage& event) { on_event(event); });
  for (std::size_t i = 0; i < parts_.disk_nodes; ++i) disk_.push_back(next_serial_++);
}

QemuMachine::~QemuMachine() {
  *alive_ = false;
  loop_.unwatch(parts_.child.pidfd.get());
  loop_.unwatch(parts_.console.get());
  loop_.unwatch(parts_.messages.get());
  if (ended_) return;
  kill_child(parts_.child);
  [[maybe_unused]] const auto reaped = wait_for(parts_.child);
}

Status QemuMachine::watch_all() {
  DRUPE_TRY(loop_.watch(parts_.child.pidfd.get(), EPOLLIN, [this](std::uint32_t) { on_process_end(); }));
  DRUPE_TRY(loop_.watch(parts_.console.get(), EPOLLIN,
                        [this](std::uint32_t) { drain(parts_.console.get(), console_); }));
  DRUPE_TRY(loop_.watch(parts_.messages.get(), EPOLLIN,
                        [this](std::uint32_t) { drain(parts_.messages.get(), messages_); }));
  return qmp_->start();
}

void QemuMachine::drain(int fd, ByteRing& ring) {
  std::array<char, 8192> chunk{};
  const ssize_t got = ::read(fd, chunk.data(), chunk.size());
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    loop_.unwatch(fd);
    return;
  }
  ring.append(std::string_view(chunk.data(), static_cast<std::size_t>(got)));
}

void QemuMachine::on_process_end() {
  const auto status = try_wait(parts_.child);
  if (status && !*status) return;
  loop_.unwatch(parts_.child.pidfd.get());
  ended_ = true;
  end_.wait_status = status ? **status : 0;
  // What it said last is still in the sockets; both are non-blocking.
  for (int i = 0; i < 16; ++i) {
    drain(parts_.console.get(), console_);
    drain(parts_.messages.get(), messages_);
  }
  end_.reason = end_reason();
  qmp_->close(Error{ErrorCode::kVmLost, end_.reason, {}, 0});
  end_flattening(fail(ErrorCode::kVmLost, end_.reason));
  if (on_end_) on_end_(end_);
}

std::string QemuMachine::end_reason() const {
  if (const auto panic = last_line_with(console_.text(), "Kernel panic"); !panic.empty())
    return "The guest's kernel gave up: " + panic;
  if (end_.guest_reset) return "The guest shut down or restarted itself";
  std::string out = "The hypervisor ended (" + describe_wait_status(end_.wait_status) + ")";
  if (const auto said = trimmed(messages_.text()); !said.empty()) out += ": " + said;
  return out;
}

Error QemuMachine::explain(Error error) const {
  if (const auto said = trimmed(messages_.text());
      !said.empty() && error.message.find(said) == std::string::npos)
    error.message += "; it said: " + said;
  if (auto tail = trimmed(console_.text()); !tail.empty()) {
    if (tail.size() > kTailInErrors) tail.erase(0, tail.size() - kTailInErrors);
    error.message += "; the console's last lines:\n" + tail;
  }
  return error;
}

void QemuMachine::on_end(std::function<void(const MachineEnd&)> callback) {
  on_end_ = std::move(callback);
  if (!ended_) return;
  loop_.defer([this, alive = alive_] {
    if (*alive && on_end_) on_end_(end_);
  });
}

void QemuMachine::on_event(const QmpMessage& event) {
  if (event.event == "MIGRATION") migration_ = event.field("data.status");
  if (event.event == "SHUTDOWN" && event.field("data.guest") == "true") end_.guest_reset = true;
  if (event.event == "BLOCK_JOB_COMPLETED" || event.event == "BLOCK_JOB_CANCELLED") on_flattened(event);
}

Status QemuMachine::run_command(std::string_view command, std::string_view arguments, Deadline deadline,
                                std::initializer_list<int> fds) {
  auto answer = qmp_->execute(command, arguments, deadline, fds);
  if (!answer) return std::unexpected(std::move(answer).error());
  return {};
}

Status QemuMachine::begin(LaunchStage stage, Deadline deadline) {
  DRUPE_TRY(watch_all());
  DRUPE_TRY(receive_ram_address(deadline));
  // The library waits there for the delta of a prepared machine.
  if (stage != LaunchStage::kPrepare) parts_.report.reset();
  DRUPE_TRY(qmp_->await_greeting(deadline));
  DRUPE_TRY(run_command("qmp_capabilities", {}, deadline));
  if (stage == LaunchStage::kBoot) {
    DRUPE_TRY(set_link(false, deadline));
    return cont(deadline);
  }
  DRUPE_TRY(run_command("migrate-set-capabilities",
                        R"({"capabilities":[{"capability":"events","state":true}]})", deadline));
  if (stage == LaunchStage::kPrepare) return {};
  DRUPE_TRY(load_state(std::to_string(qemu_fd::kState), deadline));
  return cont(deadline);
}

Result<ssize_t> QemuMachine::receive_report(void* into, std::size_t size, Deadline deadline) {
  bool readable = false;
  DRUPE_TRY(loop_.watch(parts_.report.get(), EPOLLIN, [&readable](std::uint32_t) { readable = true; }));
  const auto came = loop_.run_until([&] { return readable || ended_; }, deadline);
  loop_.unwatch(parts_.report.get());
  if (!came) return std::unexpected(came.error());
  if (ended_) return fail(ErrorCode::kVmLost, end_.reason);
  if (!*came) return fail(ErrorCode::kTimeout, "The hypervisor did not map its memory in time");
  return ::recv(parts_.report.get(), into, size, MSG_DONTWAIT);
}

Status QemuMachine::receive_ram_address(Deadline deadline) {
  // The go-ahead: from now on the process may make itself undumpable, what is needed of /proc is open.
  if (::send(parts_.report.get(), "g", 1, MSG_NOSIGNAL) != 1) {
    const int err = errno;
    // Its end of the socket is closed, so the process ends, and its last words come with that.
    DRUPE_ASSIGN(const bool ended,
                 loop_.run_until([this] { return ended_; }, std::min(deadline, Clock::now() + kLastWords)));
    if (ended) return fail(ErrorCode::kVmLost, end_.reason);
    return fail_errno(ErrorCode::kVmLost, "The hypervisor ended at once", err);
  }
  RamReport report{};
  DRUPE_ASSIGN(const ssize_t got, receive_report(&report, sizeof report, deadline));
  // The length is ours; the address only ever selects a part of that process itself.
  if (got != sizeof report || report.address % kPageBytes != 0 ||
      report.address > (1ULL << 47) - parts_.ram_bytes)
    return fail(ErrorCode::kVmLost, "The hypervisor did not map its memory as it should");
  ram_address_ = report.address;
  return {};
}

Status QemuMachine::map_delta(const UniqueFd& delta, const std::vector<MemoryExtent>& extents,
                              Deadline deadline) {
  struct stat info{};
  if (::fstat(delta.get(), &info) != 0) return fail_sys("Looking at the saved memory failed", errno);
  DRUPE_TRY(check_extents(extents, parts_.ram_bytes, static_cast<std::uint64_t>(info.st_size)));
  DRUPE_ASSIGN(const UniqueFd list, extents_file(extents));
  if (!send_with_fds(parts_.report.get(), "d", std::array{delta.get(), list.get()}))
    return fail(ErrorCode::kVmLost, "The hypervisor does not take its saved memory");
  char done = 0;
  DRUPE_ASSIGN(const ssize_t got, receive_report(&done, 1, deadline));
  parts_.report.reset();
  if (got != 1) return fail(ErrorCode::kVmLost, "The hypervisor did not map its saved memory");
  parts_.extents = extents;
  return {};
}

Status QemuMachine::restore(SavedMachine saved, Deadline deadline) {
  DRUPE_TRY(map_delta(saved.delta, saved.extents, deadline));
  const std::string name = "state";
  DRUPE_TRY(run_command("getfd", R"({"fdname":")" + name + R"("})", deadline, {saved.device_state.get()}));
  DRUPE_TRY(load_state(name, deadline));
  return cont(deadline);
}

Status QemuMachine::load_state(const std::string& state, Deadline deadline) {
  DRUPE_TRY(run_command("migrate-incoming", R"({"uri":"fd:)" + state + R"("})", deadline));
  // qemu must not be sent `cont`, nor the guest a byte, before the state is in: such guests never answered.
  const auto settled = [this] {
    return migration_ == "completed" || migration_ == "failed" || qmp_->closed();
  };
  DRUPE_ASSIGN(const bool came, loop_.run_until(settled, deadline));
  if (qmp_->closed()) return std::unexpected(*qmp_->close_reason());
  if (!came) return fail(ErrorCode::kTimeout, "Loading the saved device state took too long");
  if (migration_ == "failed")
    return fail(ErrorCode::kMemoryIncompatible, "The hypervisor does not accept the saved device state",
                "Start the sandbox from its disk.");
  return {};
}

Status QemuMachine::stop(Deadline deadline) {
  return run_command("stop", {}, deadline);
}

Status QemuMachine::cont(Deadline deadline) {
  if (std::exchange(held_, false)) signal_child(parts_.child, SIGCONT);
  return run_command("cont", {}, deadline);
}

// The signal stops all threads, which is over when the kernel says so: no system call of theirs is under way
// then. No process can refuse it, nor wake itself.
Status QemuMachine::hold(Deadline deadline) {
  signal_child(parts_.child, SIGSTOP);
  held_ = true;
  const Deadline limit = std::min(deadline, Clock::now() + kHoldLimit);
  while (true) {
    siginfo_t info{};
    if (::waitid(P_PID, static_cast<id_t>(parts_.child.pid), &info, WSTOPPED | WNOHANG) != 0)
      return fail_sys("Stopping the hypervisor failed", errno);
    if (info.si_pid == parts_.child.pid) return {};
    if (Clock::now() >= limit) return fail(ErrorCode::kTimeout, "The hypervisor did not stop in time");
    std::this_thread::sleep_for(kHoldPoll);
  }
}

Status QemuMachine::set_link(bool up, Deadline deadline) {
  return run_command(
      "set_link", R"({"name":")" + std::string(kNetId) + R"(","up":)" + (up ? "true}" : "false}"), deadline);
}

// The state goes to a memory file of this machine and is copied here: a hypervisor that is taken over later
// holds no descriptor of a file that other machines start from. (A pipe would be simpler, but qemu truncates
// what it opens.)
Status QemuMachine::save_device_state(int file, Deadline deadline) {
  // qemu writes where the descriptor stands, which after a save before this one is not the beginning.
  if (::ftruncate(parts_.state_in.get(), 0) != 0 || ::lseek(parts_.state_out.get(), 0, SEEK_SET) != 0)
    return fail_sys("Rewinding the device state failed", errno);
  const std::string set = std::to_string(kStateFdset);
  DRUPE_TRY(run_command("add-fd", R"({"fdset-id":)" + set + "}", deadline, {parts_.state_out.get()}));
  auto saved = run_command("xen-save-devices-state",
                           R"({"filename":"/dev/fdset/)" + set + R"(","live":false})", deadline);
  const auto removed = run_command("remove-fd", R"({"fdset-id":)" + set + "}", deadline);
  DRUPE_TRY(saved);
  DRUPE_TRY(removed);
  if (::lseek(parts_.state_in.get(), 0, SEEK_SET) != 0)
    return fail_sys("Reading the device state failed", errno);
  auto state = read_all(parts_.state_in.get(), kMaxDeviceState);
  if (!state)
    return std::unexpected(std::move(state).error().in("The hypervisor's device state cannot be saved"));
  return write_all(file, *state);
}

Result<SavedMemory> QemuMachine::save(UniqueFd device_state, int memory_file, SaveForm form,
                                      Deadline deadline) {
  if (!parts_.mem.valid() || !parts_.pagemap.valid())
    return fail(ErrorCode::kPermission, "This host does not let the shim read the memory of its hypervisor",
                "Allow ptrace between a process and its own children.");
  DRUPE_TRY(save_device_state(device_state.get(), deadline));
  const RamView ram{parts_.mem.get(), parts_.pagemap.get(), ram_address_, parts_.ram_bytes};
  return capture_pages(ram, parts_.extents, form, memory_file, deadline);
}

}  // namespace drupe
