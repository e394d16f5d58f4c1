// What Drupe needs of a hypervisor: start a machine from nothing or from saved state, stop it, save it.
//
// A machine's memory is always a private mapping of read-only files, so no process that runs a guest can
// change what another sandbox maps: `MemoryImage::base` (a sparse file whose offsets are RAM offsets; an
// empty sparse file for a cold boot) and, over it, extents of at most one delta file. Its disk is a chain of
// read-only nodes under one writable node. All of it comes as descriptors; the hypervisor process opens no
// path.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/event_loop.h"
#include "base/result.h"
#include "base/spawn.h"
#include "base/unique_fd.h"

namespace drupe {

enum class Accelerator : std::uint8_t { kKvm, kTcg };

struct MachineShape {
  std::uint32_t vcpus = 1;         ///< 1..32
  std::uint32_t memory_mib = 512;  ///< multiple of 256, 256..65536
};

enum class DiskFormat : std::uint8_t { kRaw, kQcow2 };

/// One node of the disk's chain. Only the last is writable. Formats are named, never guessed.
struct DiskNode {
  UniqueFd fd;  ///< O_RDWR for the last node, O_RDONLY for the others: the driver refuses anything else.
  DiskFormat format = DiskFormat::kQcow2;
};

/// `length` bytes of guest RAM at `ram_offset`, stored in the delta file at `file_offset`. Page-aligned,
/// sorted by ram_offset, not overlapping.
struct MemoryExtent {
  std::uint64_t ram_offset = 0;
  std::uint64_t file_offset = 0;
  std::uint64_t length = 0;
};

struct MemoryImage {
  UniqueFd base;                      ///< O_RDONLY, exactly the RAM size; holes read as zero.
  UniqueFd delta;                     ///< O_RDONLY; may be absent.
  std::vector<MemoryExtent> extents;  ///< Of `delta`.
};

/// What was saved of a machine: for one that has been prepared, see Hypervisor::prepare().
struct SavedMachine {
  UniqueFd device_state;              ///< O_RDONLY.
  UniqueFd delta;                     ///< O_RDONLY.
  std::vector<MemoryExtent> extents;  ///< Of `delta`.
};

/// Everything a machine starts from. `version` guards the meaning of saved state, see
/// HypervisorInfo::state_key.
struct LaunchSpec {
  MachineShape shape;
  UniqueFd kernel;           ///< Uncompressed vmlinux with a PVH note. Boot only; ignored at a restore.
  UniqueFd initramfs;        ///< Newc cpio. Boot only.
  std::string command_line;  ///< Added to what the driver itself needs.
  MemoryImage memory;
  std::optional<UniqueFd> device_state;  ///< Present: restore. Absent: boot.
  std::vector<DiskNode> disk;            ///< Bottom first.
  std::uint64_t disk_bytes = 0;          ///< Size the guest sees; at least the top node's.
  UniqueFd net;  ///< AF_UNIX datagram socket that carries ethernet frames; the link starts down.
  std::array<std::uint8_t, 6>
      mac{};  ///< Same for every machine of a snapshot key; the agent changes it in the guest.
};

/// What was saved. Extents are empty for SaveForm::kWhole.
struct SavedMemory {
  std::vector<MemoryExtent> extents;
  std::uint64_t bytes = 0;  ///< Written to the memory file.
};

enum class SaveForm : std::uint8_t {
  kWhole,  ///< File offsets are RAM offsets: becomes a MemoryImage::base. Only for a machine whose base is
           ///< empty.
  kDelta,  ///< All pages that differ from the base, packed.
};

/// How a machine ended.
struct MachineEnd {
  int wait_status = 0;       ///< Of the hypervisor process.
  bool guest_reset = false;  ///< The guest asked for a reset or shutdown (QMP event), or panicked.
  std::string reason;        ///< A sentence for a person.
};

/// One running machine: owns the hypervisor process and reaps it. Used by the thread of its EventLoop.
/// Destroying it kills the process and waits for it.
class Machine {
 public:
  virtual ~Machine() = default;

  /// Host ends of the guest's two virtio-serial ports. Non-blocking stream sockets owned by the machine;
  /// valid for its life.
  [[nodiscard]] virtual int control_fd() const = 0;
  [[nodiscard]] virtual int bulk_fd() const = 0;
  /// The last bytes of the serial console, at most 64 KiB, control characters included.
  [[nodiscard]] virtual std::string console_tail() const = 0;
  /// What of the hypervisor process's confinement this host did not allow, in words; empty: full.
  [[nodiscard]] virtual std::vector<std::string> confinement_missing() const { return {}; }
  /// Process id of the hypervisor, for statistics only.
  [[nodiscard]] virtual int pid() const = 0;
  /// Called once, from the loop, when the process has ended.
  virtual void on_end(std::function<void(const MachineEnd&)> callback) = 0;
  /// Files of /proc about the process, opened when it had just started; -1: not allowed.
  [[nodiscard]] virtual int smaps_fd() const { return -1; }
  [[nodiscard]] virtual int stat_fd() const { return -1; }

  /// Of a prepared machine, once: loads what was saved and lets the guest run. After a failure the machine is
  /// of no use.
  virtual Status restore(SavedMachine saved, Deadline deadline) = 0;
  /// Pauses the vCPUs and drains the disk.
  virtual Status stop(Deadline deadline) = 0;
  /// Lets the vCPUs run on.
  virtual Status cont(Deadline deadline) = 0;
  /// While stopped: the hypervisor process runs no instruction from here on, until cont() or its end. Waits
  /// until that is so, without the loop: for moments.
  virtual Status hold([[maybe_unused]] Deadline deadline) { return {}; }
  /// While stopped: writes device state and memory to the given files (opened for writing, empty). Nothing is
  /// fsynced. The machine stays stopped and usable. The hypervisor process never holds either descriptor.
  virtual Result<SavedMemory> save(UniqueFd device_state, int memory_file, SaveForm form,
                                   Deadline deadline) = 0;
  /// Copies all overlay nodes above the image (the bottom node) into the top one. Waits until the copying has
  /// begun, not for its end: `done` is called once, from the loop, when it has ended; not after the machine's
  /// destruction. It must not wait. The nodes stay until drop_flattened().
  virtual void flatten_disk(std::function<void(Status)> done) = 0;
  /// Drops the nodes that flatten_disk() has copied, after it has succeeded; otherwise, and when it is called
  /// again, there is nothing to do. A node that cannot be dropped stays, unused.
  virtual Status drop_flattened(Deadline deadline) = 0;
  /// Grows the disk the guest sees.
  virtual Status grow_disk(std::uint64_t bytes, Deadline deadline) = 0;
  virtual Status set_link(bool up, Deadline deadline) = 0;
  /// SIGKILL through the pidfd. on_end() follows.
  virtual void kill() = 0;
};

/// What this host can run, found by running it, not by looking at device nodes.
struct HypervisorInfo {
  std::string name;  ///< "qemu"
  std::string version;
  Accelerator accelerator = Accelerator::kTcg;
  std::string state_key;      ///< Saved state fits only where this is equal: binary digest, accelerator, CPU
                              ///< model and flags, device list version.
  std::uint64_t tsc_khz = 0;  ///< Accepted within 0.1 %.
  std::vector<std::string>
      confinement_missing;  ///< What of the helper's confinement this host does not allow; empty: full.
};

/// A program that runs beside machines and is started the same way, as often as it is asked for.
struct HelperProgram {
  std::string path;
  Confinement confinement;
  /// What else the process that starts helpers does for its caller, which may not: it turns bytes into a
  /// descriptor. It takes the bytes as hostile, and does not wait.
  std::function<Result<UniqueFd>(std::string_view request)> errand;
};

/// A helper that runs. Whoever holds it must wait for it.
struct StartedHelper {
  ChildProcess child;
  std::vector<std::string> confinement_missing;
  UniqueFd control;  ///< Non-blocking stream socket; the other end is the program's descriptor 3.
};

class Hypervisor {
 public:
  virtual ~Hypervisor() = default;
  [[nodiscard]] virtual const HypervisorInfo& info() const = 0;
  /// Starts the process and, for a boot, the guest; for a restore, loads the state and lets the guest run
  /// (order of events: facts of qemu 7.2, see qemu/README.md). The loop runs nested until then or `deadline`.
  /// On failure the process is gone and the error carries the console's tail.
  virtual Result<std::unique_ptr<Machine>> launch(EventLoop& loop, LaunchSpec spec, Deadline deadline) = 0;
  /// Starts the process of a machine whose save does not exist yet: `spec` has no device state and no delta,
  /// and nodes of its disk may still be written by another machine, until that one is stopped. What remains
  /// is Machine::restore(), which is what makes the standstill of a machine that is replaced short.
  virtual Result<std::unique_ptr<Machine>> prepare(EventLoop& loop, LaunchSpec spec, Deadline deadline) = 0;
  /// For a caller that is about to give up the right to start processes: keeps a process that starts machines
  /// for it from now on, and `helper`, which is fixed from here on. Only for single-threaded callers; the
  /// process ends with the calling thread.
  virtual Status keep_starter([[maybe_unused]] const HelperProgram& helper) { return {}; }
  /// Starts the helper, a child of the caller's that ends with it, with `log` as its standard error and `fd`
  /// as its descriptor 4; the loop runs nested.
  virtual Result<StartedHelper> start_helper([[maybe_unused]] EventLoop& loop, [[maybe_unused]] UniqueFd log,
                                             [[maybe_unused]] UniqueFd fd,
                                             [[maybe_unused]] Deadline deadline) {
    return fail(ErrorCode::kUnsupported, "Helpers cannot be started here");
  }
  /// Has the helper's errand run. The loop runs nested.
  virtual Result<UniqueFd> run_errand([[maybe_unused]] EventLoop& loop,
                                      [[maybe_unused]] std::string_view request,
                                      [[maybe_unused]] Deadline deadline) {
    return fail(ErrorCode::kUnsupported, "Errands cannot be run here");
  }
};

/// How finely a node tells what it holds.
enum class NodeLayout : std::uint8_t {
  kSubclusters,  ///< By 2 KiB: small writes stay small.
  /// By 64 KiB. flatten_disk() needs a top node like this: copying into a node with subclusters while the
  /// guest writes to it ends qemu 7.2 (block/io.c: Assertion `skip_bytes < pnum' failed; mended in 8.1).
  kClusters,
};
/// An empty writable node for a disk of `disk_bytes`; writes the qcow2 header and tables to `fd`, which is
/// empty.
Status write_empty_qcow2(int fd, std::uint64_t disk_bytes, NodeLayout layout = NodeLayout::kSubclusters);

struct NodeHeader {
  std::uint64_t disk_bytes = 0;
  NodeLayout layout = NodeLayout::kSubclusters;
};
/// What a node's header says. A hypervisor can write to its own node, and those of its forks read it:
/// features that nothing here uses, encryption and other files to open among them, are kIntegrity.
Result<NodeHeader> read_qcow2_header(int fd);

}  // namespace drupe
