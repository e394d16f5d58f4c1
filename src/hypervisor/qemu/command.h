// qemu's command line for one machine. A pure function of its input, so that tests can read every word of it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "hypervisor/hypervisor.h"

namespace drupe {

/// Counts every change of the device list, the CPU model or the driver's kernel parameters that makes saved
/// state unusable.
inline constexpr int kQemuDeviceListVersion = 3;

/// CPU model under software emulation. Without the two flags the guest's kernel and C library copy and clear
/// memory with `rep movsb` and `rep stosb`, which TCG runs byte by byte: 64 KiB reads of /dev/zero 46 MB/s
/// instead of 2 GB/s.
inline constexpr const char* kTcgCpu = "max,erms=off,fsrm=off";

/// Descriptor numbers in the qemu process.
namespace qemu_fd {
inline constexpr int kQmp = 3;
inline constexpr int kControl = 4;
inline constexpr int kBulk = 5;
inline constexpr int kConsole = 6;
inline constexpr int kNet = 7;
inline constexpr int kReport = 8;
inline constexpr int kRam = 9;
inline constexpr int kDelta = 10;
inline constexpr int kExtents = 11;
inline constexpr int kKernel = 12;
inline constexpr int kInitramfs = 13;
inline constexpr int kKvm = 14;
inline constexpr int kState = 15;
inline constexpr int kFirstDisk = 20;  ///< One for each node, bottom first.
}  // namespace qemu_fd

struct QemuCommandInput {
  std::string program;
  Accelerator accelerator = Accelerator::kTcg;
  std::uint64_t tsc_khz = 0;  ///< Of the guest's time stamp counter; TCG shows the host's.
  MachineShape shape;
  bool restore = false;
  bool has_delta = false;
  bool late_delta = false;       ///< The delta comes when the process runs, over the report socket.
  bool anonymous_ram = false;    ///< The base has no data.
  std::string command_line;      ///< For the kernel, after the driver's own.
  std::vector<DiskFormat> disk;  ///< Bottom first; at least one.
  std::array<std::uint8_t, 6> mac{};
};

struct QemuCommand {
  std::vector<std::string> argv;
  std::string preload;  ///< Value of DRUPE_PRELOAD, see ram_preload.c.
};

[[nodiscard]] QemuCommand qemu_command(const QemuCommandInput& input);

/// Name of the block node (`file` false) or of its protocol node. `serial` counts up from 0 over the
/// machine's life.
[[nodiscard]] std::string disk_node_name(std::uint64_t serial, bool file);
/// Options of both nodes as the JSON that -blockdev and blockdev-add take. `backing` empty: none (JSON null).
[[nodiscard]] std::string file_node_json(std::uint64_t serial, std::uint64_t fdset, bool read_only);
[[nodiscard]] std::string disk_node_json(std::uint64_t serial, DiskFormat format, bool read_only,
                                         const std::string& backing);

inline constexpr std::string_view kDiskDeviceId = "root";
inline constexpr std::string_view kNetId = "net";

}  // namespace drupe
