// From power-on to the two open ports: the kernel's file systems, modules, devices.
#pragma once

#include "base/result.h"
#include "base/unique_fd.h"

namespace drupe::agent {

/// /proc, /sys and /dev of the agent itself, and descriptors 0 to 2 on the console.
void mount_own_filesystems();
/// Loads /mods/*.ko in the order of /mods/order and deletes them. No /mods: everything is built in. A module
/// that does not load is named on the console; what needs it fails later.
void load_modules();
/// Closes doors of the kernel that user work must not use, once modules are loaded: more modules, kexec,
/// kernel memory.
void close_doors();

struct Devices {
  UniqueFd control, bulk;  ///< The virtio ports.
  UniqueFd disk;           ///< /dev/vda, read-only; for its size.
};
/// Waits for the devices by the kernel's own announcements; at most ten seconds.
Result<Devices> find_devices();

/// Settings of the root disk's queue.
void tune_disk();

/// 127.0.0.1 and ::1.
Status loopback_up();

}  // namespace drupe::agent
