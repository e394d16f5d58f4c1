// A child of a fork that is started before its parent has been saved.
#include <cerrno>

#include <sys/epoll.h>
#include <unistd.h>

#include "base/log.h"
#include "shim/sandbox.h"

namespace drupe {
namespace {

constexpr std::chrono::seconds kPrepareLimit{20};
/// Longer than any save may take; who makes the fork ends it earlier, by closing the pipe.
constexpr std::chrono::minutes kSaveLimit{10};

}  // namespace

Status Sandbox::await_save(Launcher& launcher, SandboxRecord& updated) {
  // Without it the machine is started when the save is there, as any other.
  if (auto prepared = launcher.prepare(Clock::now() + kPrepareLimit); !prepared)
    log(LogLevel::kInfo, "A machine was not prepared: " + prepared.error().message);
  DRUPE_TRY(await_fork_byte(kForkSaved, Clock::now() + kSaveLimit));
  if (host_.placed) host_.placed();
  DRUPE_ASSIGN(SandboxRecord record, read_record(host_.dir));
  if (record.id != record_.id) return fail(ErrorCode::kIntegrity, "The record names another sandbox");
  record_ = std::move(record);
  updated = record_;
  return {};
}

Status Sandbox::await_fork_byte(char wanted, Deadline deadline) {
  bool readable = false;
  DRUPE_TRY(loop_.watch(host_.fork, EPOLLIN, [&readable](std::uint32_t) { readable = true; }));
  const auto came = loop_.run_until([&readable] { return readable; }, deadline);
  loop_.unwatch(host_.fork);
  if (!came) return std::unexpected(came.error());
  if (!*came) return fail(ErrorCode::kTimeout, "The fork did not go on in time");
  char byte = 0;
  const ssize_t got = ::read(host_.fork, &byte, 1);
  if (got < 0) return fail_sys("Hearing of the fork failed", errno);
  if (got != 1 || byte != wanted) return fail(ErrorCode::kCancelled, "The fork has failed");
  return {};
}

}  // namespace drupe
