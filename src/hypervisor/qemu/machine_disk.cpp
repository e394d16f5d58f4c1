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
    loop_.defer([done = std::move(done), busy = static_cast<bool>(flattened_)] {
      done(busy ? Status(fail(ErrorCode::kBusy, "The disk's layers are being joined already")) : Status());
    });
    return;
  }
  const auto started = run_command("block-stream",
                                   R"({"job-id":)" + quoted(std::string(kFlattenJob)) + R"(,"device":)" +
                                       quoted(disk_node_name(disk_.back(), false)) + R"(,"base-node":)" +
                                       quoted(disk_node_name(disk_.front(), false)) + "}",
                                   Clock::now() + kTidyTime);
  if (!started) {
    loop_.defer([done = std::move(done), started] { done(started); });
    return;
  }
  flattened_ = std::move(done);
}

void QemuMachine::on_flattened(const QmpMessage& event) {
  if (event.field("data.device") != kFlattenJob || !flattened_) return;
  Status result;
  if (const auto error = event.field("data.error"); !error.empty())
    result = fail(ErrorCode::kHost, "Joining the disk's layers failed: " + std::string(error));
  if (event.event == "BLOCK_JOB_CANCELLED")
    result = fail(ErrorCode::kCancelled, "Joining the disk's layers was cancelled");
  // Not from inside the event: dropping the nodes waits for answers.
  loop_.defer([this, alive = alive_, result]() mutable {
    if (!*alive || !flattened_) return;
    while (result && disk_.size() > 2) {
      // Top-down, since each node holds the one below it.
      const auto at = disk_.end() - 2;
      const auto dropped = drop_node(*at, Clock::now() + kTidyTime);
      if (!dropped) result = dropped;
      disk_.erase(at);
    }
    std::exchange(flattened_, nullptr)(result);
  });
}

Status QemuMachine::grow_disk(std::uint64_t bytes, Deadline deadline) {
  return run_command("block_resize",
                     R"({"node-name":)" + quoted(disk_node_name(disk_.back(), false)) + R"(,"size":)" +
                         std::to_string(bytes) + "}",
                     deadline);
}

}  // namespace drupe
