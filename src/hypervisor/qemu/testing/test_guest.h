// A real guest for tests: kernel and modules from the guest directory, guest_init.c as /init, a fresh ext4
// disk.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/event_loop.h"
#include "base/files.h"
#include "hypervisor/hypervisor.h"
#include "hypervisor/qemu/qemu.h"

namespace drupe::testing {

/// One directory of files that machines start from and save into. Removed at the end.
class TestGuest {
 public:
  /// Why no guest can run here ("the guest kernel is missing ..."); empty: one can.
  static std::string unavailable();
  static Result<std::unique_ptr<TestGuest>> create(Accelerator accelerator = Accelerator::kTcg);
  /// Files for fake hypervisors (fake_qemu.cpp): no guest kernel is needed.
  static Result<std::unique_ptr<TestGuest>> create_fake();
  /// From now on machines are the fake hypervisor in `mode`.
  Status use_fake(const std::string& mode);
  ~TestGuest();

  /// A saved machine: names of files in the directory.
  struct Saved {
    std::string memory;  ///< Whole (no extents) or delta.
    std::string state;
    std::vector<MemoryExtent> extents;
    SaveForm form = SaveForm::kWhole;
    std::uint64_t bytes = 0;
  };

  /// `disk`: node files, bottom first; the last is made when missing.
  Result<LaunchSpec> spec(const std::vector<std::string>& disk, const Saved* base, const Saved* delta);
  Result<std::unique_ptr<Machine>> launch(LaunchSpec spec, std::chrono::milliseconds limit);
  Result<std::unique_ptr<Machine>> boot(const std::vector<std::string>& disk);
  Result<std::unique_ptr<Machine>> restore(const std::vector<std::string>& disk, const Saved* base,
                                           const Saved* delta = nullptr);
  /// A machine that waits for a save: its disk's lower nodes may still be written.
  Result<std::unique_ptr<Machine>> prepare(const std::vector<std::string>& disk, const Saved* base);
  /// What a prepared machine goes on with.
  Result<SavedMachine> open_saved(const Saved& saved);
  /// Saves a stopped machine into new files.
  Result<Saved> save(Machine& machine, SaveForm form);
  /// Opens a new empty disk layer.
  Result<UniqueFd> new_layer(const std::string& name);
  /// Flattens the chain into a raw file, replays its journal and checks it; empty: clean.
  std::string fsck(const std::vector<std::string>& disk);

  EventLoop& loop() { return *loop_; }
  Hypervisor& hypervisor() { return *hypervisor_; }
  [[nodiscard]] const QemuOptions& options() const { return options_; }
  [[nodiscard]] const std::string& path() const { return path_; }
  Result<UniqueFd> open_file(const std::string& name, int flags);

  std::uint32_t memory_mib = 256;
  std::uint32_t vcpus = 1;
  std::uint64_t disk_bytes = 256ULL << 20;

 private:
  TestGuest() = default;
  static Result<std::unique_ptr<TestGuest>> create_directory();
  Status make_files();

  std::string path_;
  std::unique_ptr<EventLoop> loop_;
  QemuOptions options_;
  std::unique_ptr<Hypervisor> hypervisor_;
  unsigned next_file_ = 0;
};

/// Sends a line to the guest and returns its answer without the newline.
Result<std::string> ask(EventLoop& loop, Machine& machine, const std::string& line,
                        std::chrono::milliseconds limit);
/// Waits for a line that nobody asked for ("ready").
Result<std::string> hear(EventLoop& loop, Machine& machine, std::chrono::milliseconds limit);

}  // namespace drupe::testing
