// Finds out whether /dev/kvm can run a kernel, by running one's most demanding instructions.
#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace drupe {

enum class KvmVerdict : std::uint8_t {
  kUsable,
  kAbsent,     ///< No such device.
  kForbidden,  ///< The device may not be opened by this user.
  kUnusable,   ///< It opens, and cannot run 64-bit kernel code.
  kTooSlow,    ///< It runs kernel code by interpreting it.
};

struct KvmProbe {
  KvmVerdict verdict = KvmVerdict::kUnusable;
  std::string reason;  ///< A sentence; names the instruction or system call that failed. Empty when usable.
  std::string next_step;  ///< The command or setting that mends it, when there is one.
  double loop_ns = 0;     ///< Best time of one turn of a two-instruction loop in the guest; 0: not reached.
};

/// Runs 64-bit kernel-mode code (cpuid, lock cmpxchg16b, xsave/xrstor64, model-specific registers, rdtsc, a
/// timed loop) in a scratch virtual machine. A device that opens, and even one that makes virtual machines,
/// proves nothing: software paravirtual KVM interprets such code and lacks instructions. Works in a forked
/// child that is killed after `limit`, so a virtual machine that hangs costs no more than that. May be called
/// from any thread; takes some milliseconds.
[[nodiscard]] KvmProbe probe_kvm(const char* device, std::chrono::milliseconds limit);

}  // namespace drupe
