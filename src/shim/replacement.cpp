#include "shim/replacement.h"

#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

#include "base/files.h"
#include "shim/launcher.h"

namespace drupe {

Replacement::~Replacement() {
  machine_.reset();
  if (!node_.empty() && !keep_node_) ::unlinkat(dir_, node_.c_str(), 0);
}

Status Replacement::prepare(SandboxRecord record, std::string node, UniqueFd net_end, Deadline deadline) {
  record_ = std::move(record);
  node_ = std::move(node);
  record_.disk_chain.push_back(node_);
  DRUPE_ASSIGN(machine_, Launcher(loop_, hypervisor_, dir_, record_).prepare(std::move(net_end), deadline));
  return {};
}

Status Replacement::restore(const SavedState& saved, GuestLink& link, Deadline deadline, StageMarks& marks) {
  DRUPE_ASSIGN(SavedMachine files,
               open_saved(dir_, saved, std::uint64_t{record_.shape.memory_mib} * 1024 * 1024));
  DRUPE_TRY(machine_->restore(std::move(files), deadline));
  marks.mark("loaded");
  auto moved = link.move(machine_->control_fd(), machine_->bulk_fd(), deadline);
  if (moved) return {};
  Error error = std::move(moved).error();
  if (const std::string tail = console_excerpt(machine_->console_tail()); !tail.empty())
    error.message += "\nThe new machine's console ends with:\n" + tail;
  return std::unexpected(std::move(error));
}

std::unique_ptr<Machine> Replacement::take() {
  keep_node_ = true;
  return std::move(machine_);
}

Status Replacement::keep_empty_node() {
  keep_node_ = true;
  DRUPE_ASSIGN(const UniqueFd node, open_at(dir_, node_, O_RDWR | O_NOFOLLOW));
  DRUPE_ASSIGN(const std::uint64_t bytes, disk_node_bytes(node.get(), DiskFormat::kQcow2));
  if (::ftruncate(node.get(), 0) != 0) return fail_sys("Emptying a disk node failed", errno);
  return write_empty_qcow2(node.get(), bytes, layout_for(record_.disk_chain.size()));
}

}  // namespace drupe
