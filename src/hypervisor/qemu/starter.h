// A process that starts hypervisors for a shim that has locked itself down: made before, it keeps the rights
// that confining a hypervisor takes (namespaces, a uid of its own), and nothing else happens in it. What it
// starts are the shim's children and end with the shim; so does the starter.
//
// It knows program, library and accelerator from the beginning, and the one helper program that it starts as
// well, so a shim that is taken over can make it start nothing but the same confined programs, with
// descriptors that the shim has anyway. What the helper's errand does for it, the errand decides.
#pragma once

#include <memory>
#include <optional>

#include "base/event_loop.h"
#include "base/spawn.h"
#include "hypervisor/qemu/machine.h"
#include "hypervisor/qemu/qemu.h"
#include "hypervisor/qemu/starter_message.h"

namespace drupe {

class Starter {
 public:
  /// Only for single-threaded callers.
  static Result<std::unique_ptr<Starter>> create(const QemuOptions& options, const HelperProgram& helper);
  /// Ends the process.
  ~Starter();
  Starter(const Starter&) = delete;
  Starter& operator=(const Starter&) = delete;

  /// Prepares a machine (LaunchStage::kPrepare). The loop runs nested.
  Result<QemuParts> launch(EventLoop& loop, LaunchSpec spec, Deadline deadline);
  /// Hypervisor::start_helper().
  Result<StartedHelper> start_helper(EventLoop& loop, UniqueFd log, UniqueFd fd, Deadline deadline);
  /// Hypervisor::run_errand().
  Result<UniqueFd> run_errand(EventLoop& loop, std::string_view request, Deadline deadline);

 private:
  Starter(ChildProcess child, UniqueFd socket) : child_(std::move(child)), socket_(std::move(socket)) {}
  Result<QemuParts> ask(EventLoop& loop, const FdMessage& request, Deadline deadline);
  /// Nothing: the deadline passed.
  Result<std::optional<StartAnswer>> next_answer(EventLoop& loop, Deadline deadline);
  ChildProcess child_;
  UniqueFd socket_;
  std::size_t late_ = 0;  ///< Answers to requests that were given up, still to come.
};

}  // namespace drupe
