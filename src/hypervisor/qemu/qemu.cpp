#include "hypervisor/qemu/qemu.h"

#include <cerrno>
#include <cstring>

#include <unistd.h>

#include "hypervisor/qemu/launch.h"
#include "hypervisor/qemu/machine.h"
#include "hypervisor/qemu/starter.h"

namespace drupe {
namespace {

class QemuHypervisor final : public Hypervisor {
 public:
  QemuHypervisor(QemuOptions options, HypervisorInfo info)
      : options_(std::move(options)), info_(std::move(info)) {}

  [[nodiscard]] const HypervisorInfo& info() const override { return info_; }

  Result<std::unique_ptr<Machine>> launch(EventLoop& loop, LaunchSpec spec, Deadline deadline) override {
    const LaunchStage stage = stage_of(spec);
    return start(loop, std::move(spec), stage, deadline);
  }

  Result<std::unique_ptr<Machine>> prepare(EventLoop& loop, LaunchSpec spec, Deadline deadline) override {
    return start(loop, std::move(spec), LaunchStage::kPrepare, deadline);
  }

  Status keep_starter(const HelperProgram& helper) override {
    DRUPE_ASSIGN(starter_, Starter::create(options_, helper));
    return {};
  }

  Result<StartedHelper> start_helper(EventLoop& loop, UniqueFd log, UniqueFd fd, Deadline deadline) override {
    if (!starter_) return fail(ErrorCode::kInvalidState, "There is no process that could start a helper");
    return starter_->start_helper(loop, std::move(log), std::move(fd), deadline);
  }

  Result<UniqueFd> run_errand(EventLoop& loop, std::string_view request, Deadline deadline) override {
    if (!starter_) return fail(ErrorCode::kInvalidState, "There is no process that could run an errand");
    return starter_->run_errand(loop, request, deadline);
  }

 private:
  Result<std::unique_ptr<Machine>> start(EventLoop& loop, LaunchSpec spec, LaunchStage stage,
                                         Deadline deadline) {
    auto parts = starter_ && stage == LaunchStage::kPrepare
                     ? starter_->launch(loop, std::move(spec), deadline)
                     : launch_parts(options_, std::move(spec), stage);
    if (!parts) return std::unexpected(std::move(parts).error());
    auto machine = std::make_unique<QemuMachine>(loop, *std::move(parts));
    if (auto begun = machine->begin(stage, deadline); !begun)
      return std::unexpected(machine->explain(std::move(begun).error()));
    return machine;
  }

  QemuOptions options_;
  HypervisorInfo info_;
  std::unique_ptr<Starter> starter_;  ///< Starts what is prepared, once there is one.
};

}  // namespace

Result<std::unique_ptr<Hypervisor>> make_qemu_hypervisor(QemuOptions options) {
  if (options.program.empty()) options.program = qemu_program();
  if (::access(options.program.c_str(), X_OK) != 0)
    return fail(ErrorCode::kNotFound,
                "The hypervisor " + options.program + " cannot be executed: " + std::strerror(errno),
                "Install it: apt-get install qemu-system-x86");
  if (options.preload.empty() || ::access(options.preload.c_str(), R_OK) != 0)
    return fail(ErrorCode::kNotFound, "The library libdrupe-ram.so is missing (" + options.preload + ")",
                "It belongs beside drupe-shim; build or install Drupe again.");
  if (options.tsc_khz == 0) options.tsc_khz = measure_tsc_khz();
  HypervisorInfo info;
  info.name = "qemu";
  info.accelerator = options.accelerator;
  info.tsc_khz = options.tsc_khz;
  info.confinement_missing = options.confinement_missing;
  DRUPE_ASSIGN(info.state_key, qemu_state_key(options.program, options.accelerator));
  return std::make_unique<QemuHypervisor>(std::move(options), std::move(info));
}

}  // namespace drupe
