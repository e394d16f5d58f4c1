// The initramfs of the yardsticks that are guests of their own: one static program and the kernel's modules.
#pragma once

#include <string>

#include "base/result.h"

namespace drupe::bench {

/// `guest_dir` has modules/ and its order; `init` is the program that becomes PID 1. The modules are in
/// /mods.
Result<std::string> own_initramfs(const std::string& guest_dir, const std::string& init);

}  // namespace drupe::bench
