#include "hypervisor/kvm_probe.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <ctime>

#include <fcntl.h>
#include <linux/kvm.h>
#include <poll.h>
#include <signal.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "base/event_loop.h"
#include "base/unique_fd.h"

// The guest's program. Each step ends with `out %al, $0xf4`, where al is the number of the step that comes
// next, so the last value seen outside names the instruction that failed. rsi: 64-byte aligned scratch
// memory; rbx: 1 when XSAVE is there.
asm(R"(
  .pushsection .rodata
  .globl drupe_probe_code, drupe_probe_code_end
drupe_probe_code:
  movb $1, %al
  outb %al, $0xf4
  movl $1, %eax
  xorl %ecx, %ecx
  pushq %rbx
  cpuid
  popq %rbx
  movb $2, %al
  outb %al, $0xf4
  xorl %eax, %eax
  xorl %edx, %edx
  pushq %rbx
  xorl %ebx, %ebx
  xorl %ecx, %ecx
  lock cmpxchg16b (%rsi)
  popq %rbx
  movb $3, %al
  outb %al, $0xf4
  testl %ebx, %ebx
  jz 1f
  xorl %ecx, %ecx
  xorl %edx, %edx
  movl $3, %eax
  xsetbv
  movl $3, %eax
  xsave64 64(%rsi)
  movl $3, %eax
  xrstor64 64(%rsi)
1:
  movb $4, %al
  outb %al, $0xf4
  movl $0xc0000080, %ecx
  rdmsr
  wrmsr
  movl $0xc0000101, %ecx
  rdmsr
  wrmsr
  swapgs
  movb $5, %al
  outb %al, $0xf4
  rdtsc
  movb $6, %al
  outb %al, $0xf4
  movl $20000, %ecx
2:
  decl %ecx
  jnz 2b
  movb $7, %al
  outb %al, $0xf4
  movl $20000, %ecx
3:
  decl %ecx
  jnz 3b
  movb $8, %al
  outb %al, $0xf4
  hlt
drupe_probe_code_end:
  .popsection
)");
extern "C" const char drupe_probe_code[];
extern "C" const char drupe_probe_code_end[];

namespace drupe {
namespace {

constexpr std::size_t kMemorySize = 0x400000;
constexpr std::uint64_t kPml4 = 0x1000;
constexpr std::uint64_t kPdpt = 0x2000;
constexpr std::uint64_t kPageDirectory = 0x3000;
constexpr std::uint64_t kCode = 0x10000;
constexpr std::uint64_t kScratch = 0x20000;
constexpr std::uint64_t kStackTop = 0x30000;
constexpr std::uint16_t kStepPort = 0xf4;
constexpr std::uint8_t kLoopStep = 6;
constexpr std::uint8_t kLastStep = 8;
constexpr double kLoopTurns = 20000;
/// Real hardware needs about a nanosecond for a turn, nested emulation some tens; an interpreter about two
/// thousand.
constexpr double kInterpretedNs = 500;

constexpr std::array<const char*, 9> kStepNames{"entering 64-bit mode",
                                                "cpuid",
                                                "lock cmpxchg16b",
                                                "xsetbv, xsave64, xrstor64",
                                                "rdmsr, wrmsr, swapgs",
                                                "rdtsc",
                                                "a loop",
                                                "a loop",
                                                "hlt"};

// The kernel header's struct kvm_cpuid2 ends in a flexible array that has a size in C++ (12 bytes instead of
// 8), which changes both its layout and the numbers of the ioctls that encode it; this is the layout of C.
struct CpuidTable {
  std::uint32_t count = 0;
  std::uint32_t padding = 0;
  std::array<kvm_cpuid_entry2, 256> entries{};
};
constexpr std::size_t kCpuidHeadSize = 8;
static_assert(offsetof(CpuidTable, entries) == kCpuidHeadSize);
constexpr unsigned long kGetSupportedCpuid = _IOC(_IOC_READ | _IOC_WRITE, KVMIO, 0x05, kCpuidHeadSize);
constexpr unsigned long kSetCpuid2 = _IOC(_IOC_WRITE, KVMIO, 0x90, kCpuidHeadSize);

/// What the child reports. Plain data: the child must not allocate, since other threads may have held the
/// allocator's lock.
struct Report {
  const char* failed_call =
      nullptr;  // a system call that failed; a literal, so the pointer is good in the parent too
  int err = 0;
  std::uint32_t exit_reason = 0;
  std::uint32_t suberror = 0;
  std::uint8_t step = 0;
  std::uint8_t xsave = 0;
  std::uint8_t done = 0;
  double loop_ns = 0;
};

double now_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return static_cast<double>(now.tv_sec) * 1e9 + static_cast<double>(now.tv_nsec);
}

// Runs in the forked child: system calls and stack memory only.
class ProbeRun {
 public:
  explicit ProbeRun(Report& report) : report_(report) {}

  void run(const char* device) {
    const int kvm = ::open(device, O_RDWR | O_CLOEXEC);
    if (kvm < 0) return failed("open");
    if (::ioctl(kvm, KVM_GET_API_VERSION, 0) != KVM_API_VERSION) return failed("KVM_GET_API_VERSION");
    const int vm = ::ioctl(kvm, KVM_CREATE_VM, 0);
    if (vm < 0) return failed("KVM_CREATE_VM");
    if (!set_memory(vm)) return;
    const int vcpu = ::ioctl(vm, KVM_CREATE_VCPU, 0);
    if (vcpu < 0) return failed("KVM_CREATE_VCPU");
    const int size = ::ioctl(kvm, KVM_GET_VCPU_MMAP_SIZE, 0);
    if (size < static_cast<int>(sizeof(kvm_run))) return failed("KVM_GET_VCPU_MMAP_SIZE");
    void* shared =
        ::mmap(nullptr, static_cast<std::size_t>(size), PROT_READ | PROT_WRITE, MAP_SHARED, vcpu, 0);
    if (shared == MAP_FAILED) return failed("mmap of the vCPU");
    if (!set_cpuid(kvm, vcpu) || !set_registers(vcpu)) return;
    step_through(vcpu, static_cast<kvm_run*>(shared));
  }

 private:
  void failed(const char* call) {
    report_.failed_call = call;
    report_.err = errno;
  }

  bool set_memory(int vm) {
    void* memory = ::mmap(nullptr, kMemorySize, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      failed("mmap of guest memory");
      return false;
    }
    auto* bytes = static_cast<std::uint8_t*>(memory);
    const auto put = [bytes](std::uint64_t at, std::uint64_t value) {
      std::memcpy(bytes + at, &value, sizeof value);
    };
    put(kPml4, kPdpt | 3);
    put(kPdpt, kPageDirectory | 3);
    put(kPageDirectory, 0 | 0x83);  // two pages of 2 MiB, identity mapped
    put(kPageDirectory + 8, 0x200000 | 0x83);
    std::memcpy(bytes + kCode, drupe_probe_code,
                static_cast<std::size_t>(drupe_probe_code_end - drupe_probe_code));
    kvm_userspace_memory_region region{};
    region.memory_size = kMemorySize;
    region.userspace_addr = reinterpret_cast<std::uint64_t>(memory);
    if (::ioctl(vm, KVM_SET_USER_MEMORY_REGION, &region) == 0) return true;
    failed("KVM_SET_USER_MEMORY_REGION");
    return false;
  }

  bool set_cpuid(int kvm, int vcpu) {
    static CpuidTable table;
    table.count = static_cast<std::uint32_t>(table.entries.size());
    if (::ioctl(kvm, kGetSupportedCpuid, &table) != 0) {
      failed("KVM_GET_SUPPORTED_CPUID");
      return false;
    }
    for (std::uint32_t i = 0; i < table.count; ++i)
      if (table.entries[i].function == 1) report_.xsave = (table.entries[i].ecx >> 26) & 1;
    if (::ioctl(vcpu, kSetCpuid2, &table) == 0) return true;
    failed("KVM_SET_CPUID2");
    return false;
  }

  bool set_registers(int vcpu) {
    kvm_sregs special{};
    if (::ioctl(vcpu, KVM_GET_SREGS, &special) != 0) {
      failed("KVM_GET_SREGS");
      return false;
    }
    special.cr3 = kPml4;
    special.cr4 =
        0x20 | 0x200 | 0x400 | (report_.xsave != 0 ? 0x40000ULL : 0ULL);  // PAE, OSFXSR, OSXMMEXCPT, OSXSAVE
    special.cr0 = 0x80000000U | 0x20U | 0x10U | 0x2U | 0x1U;              // PG, NE, ET, MP, PE
    special.efer = 0x500;                                                 // LME, LMA
    kvm_segment code{};
    code.limit = 0xffffffff;
    code.selector = 8;
    code.type = 11;
    code.present = code.s = code.l = code.g = 1;
    kvm_segment data = code;
    data.selector = 16;
    data.type = 3;
    data.l = 0;
    data.db = 1;
    special.cs = code;
    special.ds = special.es = special.fs = special.gs = special.ss = data;
    if (::ioctl(vcpu, KVM_SET_SREGS, &special) != 0) {
      failed("KVM_SET_SREGS");
      return false;
    }
    kvm_regs general{};
    general.rip = kCode;
    general.rsp = kStackTop;
    general.rsi = kScratch;
    general.rbx = report_.xsave;
    general.rflags = 2;
    if (::ioctl(vcpu, KVM_SET_REGS, &general) == 0) return true;
    failed("KVM_SET_REGS");
    return false;
  }

  void step_through(int vcpu, const kvm_run* run) {
    double entered = 0;
    while (true) {
      if (::ioctl(vcpu, KVM_RUN, 0) != 0 && errno != EINTR) return failed("KVM_RUN");
      report_.exit_reason = run->exit_reason;
      if (run->exit_reason == KVM_EXIT_INTERNAL_ERROR) report_.suberror = run->internal.suberror;
      if (run->exit_reason == KVM_EXIT_HLT) {
        report_.done = report_.step == kLastStep ? 1 : 0;
        return;
      }
      if (run->exit_reason != KVM_EXIT_IO || run->io.port != kStepPort || run->io.size != 1) return;
      report_.step = *(reinterpret_cast<const std::uint8_t*>(run) + run->io.data_offset);
      const double now = now_ns();
      if (report_.step > kLoopStep && report_.step <= kLastStep) {
        const double turn = (now - entered) / kLoopTurns;
        report_.loop_ns = report_.loop_ns == 0 ? turn : std::min(report_.loop_ns, turn);
      }
      entered = now;
    }
  }

  Report& report_;
};

std::string describe(const Report& report) {
  const char* step = kStepNames[std::min<std::size_t>(report.step, kStepNames.size() - 1)];
  if (report.failed_call != nullptr)
    return std::string(report.failed_call) + " failed (" + std::strerror(report.err) + ") at: " + step;
  if (report.exit_reason == KVM_EXIT_INTERNAL_ERROR)
    return std::string("KVM_EXIT_INTERNAL_ERROR (suberror ") + std::to_string(report.suberror) +
           ") at: " + step;
  return "the virtual machine stopped with exit reason " + std::to_string(report.exit_reason) +
         " at: " + step;
}

KvmProbe judge(const Report& report, bool in_time) {
  KvmProbe probe;
  probe.loop_ns = report.loop_ns;
  if (report.failed_call != nullptr && std::strcmp(report.failed_call, "open") == 0) {
    const bool absent = report.err == ENOENT || report.err == ENXIO || report.err == ENODEV;
    probe.verdict = absent ? KvmVerdict::kAbsent : KvmVerdict::kForbidden;
    probe.reason = absent ? "There is no usable KVM device" : "The KVM device may not be opened by this user";
    probe.reason += std::string(" (") + std::strerror(report.err) + ")";
    probe.next_step =
        absent ? "Load the module (modprobe kvm_intel or kvm_amd) or enable virtualization in the firmware."
               : "Add the user to the device's group: sudo usermod -aG kvm \"$USER\", then log in again.";
    return probe;
  }
  if (report.done != 0 && report.loop_ns < kInterpretedNs) {
    probe.verdict = KvmVerdict::kUsable;
    return probe;
  }
  if (report.done != 0) {
    probe.verdict = KvmVerdict::kTooSlow;
    probe.reason = "The KVM device opens, and interprets kernel code instead of running it: " +
                   std::to_string(static_cast<int>(report.loop_ns)) + " ns for a loop of two instructions";
  } else {
    probe.reason = "The KVM device opens and cannot run a kernel: ";
    probe.reason += in_time ? describe(report)
                            : std::string("no end within the time limit at: ") +
                                  kStepNames[std::min<std::size_t>(report.step, kStepNames.size() - 1)];
  }
  probe.next_step =
      "Nothing to mend on this machine: it needs hardware virtualization (VT-x or SVM) passed through to it.";
  return probe;
}

}  // namespace

KvmProbe probe_kvm(const char* device, std::chrono::milliseconds limit) {
  KvmProbe failed;
  void* shared = ::mmap(nullptr, sizeof(Report), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (shared == MAP_FAILED) {
    failed.reason = std::string("Probing KVM failed: ") + std::strerror(errno);
    return failed;
  }
  // Shared memory instead of a message at the end: a child that hangs still shows how far it came.
  auto* report = new (shared) Report;
  std::array<int, 2> ends{};
  if (::pipe2(ends.data(), O_CLOEXEC) != 0) {
    failed.reason = std::string("Probing KVM failed: ") + std::strerror(errno);
    ::munmap(shared, sizeof(Report));
    return failed;
  }
  UniqueFd alive(ends[0]);
  UniqueFd child_end(ends[1]);
  const pid_t parent = ::getpid();
  const pid_t child = ::fork();
  if (child == 0) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(1);
    ProbeRun(*report).run(device);
    ::_exit(0);
  }
  if (child < 0) {
    failed.reason = std::string("Probing KVM failed: ") + std::strerror(errno);
    ::munmap(shared, sizeof(Report));
    return failed;
  }
  child_end.reset();  // the pipe closes when the child has ended
  const Deadline deadline = Clock::now() + limit;
  pollfd waited{alive.get(), POLLIN, 0};
  int ended = 0;
  do {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(deadline - Clock::now()).count();
    ended = ::poll(&waited, 1, static_cast<int>(std::max<std::int64_t>(left, 0)));
  } while (ended < 0 && errno == EINTR);
  if (ended <= 0) ::kill(child, SIGKILL);
  int status = 0;
  while (::waitpid(child, &status, 0) < 0 && errno == EINTR) {
  }
  const KvmProbe result = judge(*report, ended > 0);
  ::munmap(shared, sizeof(Report));
  return result;
}

}  // namespace drupe
