// A running qemu process behind the Machine interface.
#pragma once

#include <deque>
#include <memory>
#include <string>
#include <vector>

#include "base/spawn.h"
#include "hypervisor/hypervisor.h"
#include "hypervisor/qemu/byte_ring.h"
#include "hypervisor/qemu/page_capture.h"
#include "hypervisor/qemu/qmp_client.h"

namespace drupe {

enum class LaunchStage : std::uint8_t {
  kBoot,
  kRestore,
  kPrepare,  ///< Up to where a restore would load what was saved.
};

/// What a started process consists of.
struct QemuParts {
  ChildProcess child;
  std::vector<std::string> confinement_missing;
  UniqueFd qmp, control, bulk, console, messages,
      report;                          ///< Host ends; `messages` is qemu's standard error.
  UniqueFd spare_net;                  ///< Other end of the NIC's socket when the caller gave none.
  UniqueFd mem, pagemap, smaps, stat;  ///< Of /proc/PID.
  UniqueFd state_in,
      state_out;  ///< One memory file for device state: to read here, to write (O_WRONLY) by qemu.
  std::uint64_t ram_bytes = 0;
  std::vector<MemoryExtent> extents;  ///< Of the delta file it started from.
  std::size_t disk_nodes = 0;
};

class QemuMachine final : public Machine {
 public:
  QemuMachine(EventLoop& loop, QemuParts parts);
  ~QemuMachine() override;

  /// Watches everything, opens the control connection, learns where the RAM is and, unless it is only
  /// prepared, starts the guest.
  Status begin(LaunchStage stage, Deadline deadline);
  /// Adds what the process and the guest said last.
  [[nodiscard]] Error explain(Error error) const;

  [[nodiscard]] int control_fd() const override { return parts_.control.get(); }
  [[nodiscard]] int bulk_fd() const override { return parts_.bulk.get(); }
  [[nodiscard]] std::string console_tail() const override { return console_.text(); }
  [[nodiscard]] std::vector<std::string> confinement_missing() const override {
    return parts_.confinement_missing;
  }
  [[nodiscard]] int pid() const override { return parts_.child.pid; }
  void on_end(std::function<void(const MachineEnd&)> callback) override;
  [[nodiscard]] int smaps_fd() const override { return parts_.smaps.get(); }
  [[nodiscard]] int stat_fd() const override { return parts_.stat.get(); }
  Status restore(SavedMachine saved, Deadline deadline) override;
  Status stop(Deadline deadline) override;
  Status cont(Deadline deadline) override;
  Status hold(Deadline deadline) override;
  Result<SavedMemory> save(UniqueFd device_state, int memory_file, SaveForm form, Deadline deadline) override;
  void flatten_disk(std::function<void(Status)> done) override;
  Status drop_flattened(Deadline deadline) override;
  Status grow_disk(std::uint64_t bytes, Deadline deadline) override;
  Status set_link(bool up, Deadline deadline) override;
  void kill() override { kill_child(parts_.child); }

 private:
  Status watch_all();
  void drain(int fd, ByteRing& ring);
  void on_process_end();
  void on_event(const QmpMessage& event);
  /// Waits for the library's next word on the report socket; `size` bytes, or less at its end.
  Result<ssize_t> receive_report(void* into, std::size_t size, Deadline deadline);
  Status receive_ram_address(Deadline deadline);
  Status map_delta(const UniqueFd& delta, const std::vector<MemoryExtent>& extents, Deadline deadline);
  /// `state`: number or name of a descriptor in qemu.
  Status load_state(const std::string& state, Deadline deadline);
  Status save_device_state(int file, Deadline deadline);
  Status run_command(std::string_view command, std::string_view arguments, Deadline deadline,
                     std::initializer_list<int> fds = {});
  [[nodiscard]] std::string end_reason() const;
  // machine_disk.cpp
  Status drop_node(std::uint64_t serial, Deadline deadline);
  void on_flattened(const QmpMessage& event);
  void end_flattening(const Status& result);

  EventLoop& loop_;
  QemuParts parts_;
  std::unique_ptr<QmpClient> qmp_;
  ByteRing console_{64 * 1024};
  ByteRing messages_{4096};
  std::uint64_t ram_address_ = 0;
  std::string migration_;            ///< Last status of the incoming state.
  std::vector<std::uint64_t> disk_;  ///< Serials of the chain's nodes, bottom first.
  std::uint64_t next_serial_ = 0;
  std::function<void(Status)> flattened_;  ///< Set while the job runs.
  bool joined_ = false;                    ///< The job succeeded; its nodes can be dropped.
  bool held_ = false;                      ///< Stopped by SIGSTOP.
  bool ended_ = false;
  MachineEnd end_;
  std::function<void(const MachineEnd&)> on_end_;
  std::shared_ptr<bool> alive_ =
      std::make_shared<bool>(true);  ///< False for deferred calls after destruction.
};

}  // namespace drupe
