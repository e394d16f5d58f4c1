#include "agent/caps.h"

#include <array>
#include <cstdint>

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace drupe::agent {
namespace {

// Loading code into the kernel, raw memory and ports, scheduling above the agent, memory and process bounds,
// and the audit and suspend machinery. docs/guest.md documents the set.
constexpr std::array kDropped{CAP_SYS_MODULE,    CAP_SYS_RAWIO,    CAP_SYS_NICE,      CAP_SYS_RESOURCE,
                              CAP_MAC_ADMIN,     CAP_MAC_OVERRIDE, CAP_AUDIT_CONTROL, CAP_AUDIT_READ,
                              CAP_BLOCK_SUSPEND, CAP_WAKE_ALARM};

}  // namespace

void drop_bounding_capabilities() {
  for (const int capability : kDropped) ::prctl(PR_CAPBSET_DROP, capability, 0, 0, 0);
}

void drop_own_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  std::array<__user_cap_data_struct, 2> data{};
  if (::syscall(SYS_capget, &header, data.data()) != 0) return;
  for (const int capability : kDropped) {
    auto& word = data[static_cast<std::size_t>(CAP_TO_INDEX(capability))];
    const auto keep = ~static_cast<std::uint32_t>(CAP_TO_MASK(capability));
    word.effective &= keep;
    word.permitted &= keep;
    word.inheritable &= keep;
  }
  ::syscall(SYS_capset, &header, data.data());
}

}  // namespace drupe::agent
