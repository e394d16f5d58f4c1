// The disk's chain of nodes while the machine runs.
#include <unistd.h>

#include "hypervisor/qemu/command.h"
#include "hypervisor/qemu/machine.h"

namespace drupe {
namespace {

constexpr std::string_view kFlattenJob = "flatten";
constexpr std::chrono::seconds kTidyTime{10};

std::string quoted(const std::string& name) {
  return "\"" + name + "\"";
}

}  // namespace

Status QemuMachine::drop_node(std::uint64_t serial, Deadline deadline) {
  const auto remove = [this, serial, deadline](bool file) {
    return run_command("blockdev-del", R"({"node-name":)" + quoted(disk_node_name(serial, file)) + "}",
                       deadline);
  };
  auto dropped = remove(false);
  if (auto file = remove(true); dropped && !file) dropped = file;
  auto set = run_command("remove-fd", R"({"fdset-id":)" + std::to_string(serial) + "}", deadline);
  return dropped ? set : dropped;
}

void QemuMachine::flatten_disk(std::function<void(Status)> done) {
  if (flattened_ || disk_.size() < 3) {
    loop_.defer([done = std::move(done), alive = alive_, busy = static_cast<bool>(flattened_)] {
      if (!*alive) return;
      done(busy ? Status(fail(ErrorCode::kBusy, "The disk's layers are being joined already")) : Status());
    });
    return;
  }
  joined_ = false;
  // Before the command: a short job may have ended when its answer is read.
  flattened_ = std::move(done);
  const auto started = run_command("block-stream",
                                   R"({"job-id":)" + quoted(std::string(kFlattenJob)) + R"(,"device":)" +
                                       quoted(disk_node_name(disk_.back(), false)) + R"(,"base-node":)" +
                                       quoted(disk_node_name(disk_.front(), false)) + "}",
                                   Clock::now() + kTidyTime);
  if (!started) end_flattening(started);
}

void QemuMachine::on_flattened(const QmpMessage& event) {
  if (event.field("data.device") != kFlattenJob || !flattened_) return;
  Status result;
  if (const auto error = event.field("data.error"); !error.empty())
    result = fail(ErrorCode::kHost, "Joining the disk's layers failed: " + std::string(error));
  if (event.event == "BLOCK_JOB_CANCELLED")
    result = fail(ErrorCode::kCancelled, "Joining the disk's layers was cancelled");
  joined_ = result.has_value();
  end_flattening(result);
}

// Taken out at once, so that a second event, which only a broken hypervisor sends, finds nothing to call.
void QemuMachine::end_flattening(const Status& result) {
  auto done = std::exchange(flattened_, nullptr);
  if (!done) return;
  loop_.defer([done = std::move(done), alive = alive_, result] {
    if (*alive) done(result);
  });
}

Status QemuMachine::drop_flattened(Deadline deadline) {
  while (joined_ && disk_.size() > 2) {
    // Top-down, since each node holds the one below it.
    const auto at = disk_.end() - 2;
    const std::uint64_t serial = *at;
    disk_.erase(at);
    DRUPE_TRY(drop_node(serial, deadline));
  }
  joined_ = false;
  return {};
}

Status QemuMachine::grow_disk(std::uint64_t bytes, Deadline deadline) {
  return run_command("block_resize",
                     R"({"node-name":)" + quoted(disk_node_name(disk_.back(), false)) + R"(,"size":)" +
                         std::to_string(bytes) + "}",
                     deadline);
}

}  // namespace drupe
