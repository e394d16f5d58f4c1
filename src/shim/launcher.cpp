#include "shim/launcher.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <utility>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "base/files.h"
#include "base/ids.h"
#include "base/log.h"
#include "shim/guest_trust.h"
#include "shim/network_link.h"

namespace drupe {
namespace {

constexpr std::uint64_t kMebibyte = 1024 * 1024;
constexpr std::size_t kEntropyBytes = 64;
constexpr std::size_t kMachineIdDigits = 32;
// About ten times what a restore takes on a machine with all processors busy. A restore that hangs does so
// for good, so the second attempt gets all the time that is left.
constexpr std::chrono::seconds kFirstRestoreDeadline{8};
constexpr std::chrono::seconds kEndGrace{1};
constexpr std::size_t kConsoleExcerpt = 2048;
// The same for every machine of a base snapshot; the agent gives the guest one of its own.
constexpr std::array<std::uint8_t, 6> kMac{0x02, 'd', 'r', 'u', 'p', 'e'};

bool restores(LaunchMode mode) {
  return mode == LaunchMode::kFromBase || mode == LaunchMode::kResume || mode == LaunchMode::kForkChild;
}

std::uint64_t realtime_ns() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

Result<UniqueFd> duplicate(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return fail_sys("Copying a descriptor failed", errno);
  return copy;
}

// Memory of a machine that boots: a file of nothing but a hole, on disk, because reading a hole of tmpfs
// would fill it.
Result<UniqueFd> zero_memory(int dir, std::uint64_t bytes) {
  const std::string name = "zero.tmp-" + random_id();
  DRUPE_ASSIGN(const UniqueFd writable, open_at(dir, name, O_RDWR | O_CREAT | O_EXCL | O_NOFOLLOW));
  auto readable = open_at(dir, name, O_RDONLY | O_NOFOLLOW);
  ::unlinkat(dir, name.c_str(), 0);
  if (!readable) return std::unexpected(std::move(readable).error());
  if (::ftruncate(writable.get(), static_cast<off_t>(bytes)) != 0)
    return fail_sys("Sizing the guest's memory failed", errno);
  return std::move(*readable);
}

// An attempt that fails must not end the sandbox: its link's callbacks are heard only after the attempt has
// succeeded.
GuestLink::Callbacks when_live(const GuestLink::Callbacks& callbacks, const std::shared_ptr<bool>& live) {
  GuestLink::Callbacks guarded;
  guarded.on_event = [on_event = callbacks.on_event, live](EventKind kind, std::string_view text) {
    if (*live) on_event(kind, text);
  };
  guarded.on_broken = [on_broken = callbacks.on_broken, live](const Error& error, bool hostile) {
    if (*live) on_broken(error, hostile);
  };
  return guarded;
}

// Whether the top node may be written: other sandboxes that build on it have links of it in their
// directories, and a long chain can be flattened only into a node without subclusters.
bool top_is_fit(int dir, const SandboxRecord& record) {
  const auto& chain = record.disk_chain;
  const auto top = open_at(dir, chain.empty() ? "" : chain.back(), O_RDONLY | O_NOFOLLOW);
  struct stat info{};
  if (!top || ::fstat(top->get(), &info) != 0) return true;  // Not there: made now, or told then.
  if (info.st_nlink > 1) return false;
  const auto header = read_qcow2_header(top->get());
  return !header || header->layout == NodeLayout::kClusters ||
         layout_for(chain.size()) == NodeLayout::kSubclusters;
}

void complete_identity(SandboxRecord& record) {
  if (record.machine_id.size() != kMachineIdDigits)
    record.machine_id = to_hex(random_bytes(kMachineIdDigits / 2));
  if (record.hostname.empty() || record.hostname.size() > 64)
    record.hostname = record.id.empty() ? "drupe" : record.id;
}

}  // namespace

Result<SavedMachine> open_saved(int dir, const SavedState& saved, std::uint64_t ram_bytes) {
  SavedMachine out;
  DRUPE_ASSIGN(out.device_state, open_at(dir, saved.device_state_file, O_RDONLY | O_NOFOLLOW));
  if (saved.delta_file.empty()) return out;
  DRUPE_ASSIGN(out.delta, open_at(dir, saved.delta_file, O_RDONLY | O_NOFOLLOW));
  DRUPE_ASSIGN(const std::string map,
               read_file(dir, saved.extents_file, kMaxExtents * sizeof(MemoryExtent) + 64));
  DRUPE_ASSIGN(out.extents, decode_extents(map, ram_bytes));
  return out;
}

Status send_identity(GuestLink& link, const SandboxRecord& record, bool new_identity, Deadline deadline) {
  SetUpRequest request;
  request.realtime_ns = realtime_ns();
  request.entropy = random_bytes(kEntropyBytes);
  request.hostname = record.hostname;
  request.machine_id = record.machine_id;
  request.mac = mac_of(record.machine_id);
  request.new_identity = new_identity;
  request.default_env = record.image_env;
  request.default_user = record.image_user;
  request.default_cwd = record.image_cwd;
  const std::string body = request.encode();
  if (body.size() > kMaxPayload - sizeof(std::uint16_t))
    return fail(ErrorCode::kLimit, "The image's environment is longer than 64 KiB", "Use another image.");
  DRUPE_TRY(link.call(RequestKind::kSetUp, body, deadline));
  return {};
}

std::string console_excerpt(const std::string& console) {
  std::string text;
  for (const char c : console.substr(console.size() - std::min(console.size(), kConsoleExcerpt)))
    if (c == '\n' || c == '\t' || static_cast<unsigned char>(c) >= ' ') text.push_back(c);
  return text;
}

NodeLayout layout_for(std::size_t nodes) {
  return nodes > kLongDiskChain ? NodeLayout::kClusters : NodeLayout::kSubclusters;
}

std::uint64_t new_epoch() {
  std::uint64_t epoch = 0;
  while (epoch == 0 || epoch == ~0ULL) std::memcpy(&epoch, random_bytes(sizeof epoch).data(), sizeof epoch);
  return epoch;
}

Result<std::uint64_t> disk_node_bytes(int fd, DiskFormat format) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return fail_sys("Looking at a disk file failed", errno);
  if (format == DiskFormat::kRaw) return static_cast<std::uint64_t>(info.st_size);
  DRUPE_ASSIGN(const NodeHeader header, read_qcow2_header(fd));
  return header.disk_bytes;
}

void Launcher::mark(const char* stage) {
  timings_.emplace_back(stage, std::chrono::duration<double, std::milli>(Clock::now() - begun_).count());
}

Result<Launched> Launcher::launch(Options options) {
  complete_identity(record_);
  const bool top_is_saved = record_.state == SandboxState::kPaused && record_.saved &&
                            (options.mode == LaunchMode::kResume || options.mode == LaunchMode::kBoot);
  const bool restore = restores(options.mode);
  fresh_top_ = restore || options.mode == LaunchMode::kMakeBase;
  const bool needs_top = record_.disk_chain.size() == 1 || top_is_saved ||
                         (options.mode == LaunchMode::kBoot && !top_is_fit(dir_, record_));
  if (needs_top) {
    record_.disk_chain.push_back("disk-" + std::to_string(record_.next_file++) + ".qcow2");
    fresh_top_ = true;
  }
  if (restore && !record_.saved)
    return fail(ErrorCode::kInvalidState, "The sandbox has no saved memory to start from",
                "Use `drupe start`.");
  if (prepared_chain_ != record_.disk_chain || prepared_bytes_ != record_.disk_bytes) prepared_ = {};
  const std::uint32_t attempts = restore ? options.retries + 1 : 1;
  for (std::uint32_t i = 0;; ++i) {
    const bool last = i + 1 >= attempts;
    const auto now = Clock::now();
    const Deadline first = std::min(now + kFirstRestoreDeadline, now + (options.deadline - now) / 2);
    const Deadline deadline = last ? options.deadline : first;
    if (i > 0) timings_.clear();
    notes_.clear();
    auto launched = attempt(options, deadline);
    if (launched || last || network_failed_ || trust_failed_ || Clock::now() >= options.deadline)
      return launched;
    log(LogLevel::kWarning, "A restore failed and is tried again: " + launched.error().message);
  }
}

Result<Launched> Launcher::attempt(const Options& options, Deadline deadline) {
  Launched launched = std::exchange(prepared_, {});
  DRUPE_TRY(start_machine(options, launched, deadline));
  mark("hypervisor");
  auto ended = std::make_shared<std::optional<MachineEnd>>();
  launched.machine->on_end([ended](const MachineEnd& end) { *ended = end; });
  auto live = std::make_shared<bool>(false);
  DRUPE_ASSIGN(launched.link,
               GuestLink::create(loop_, launched.machine->control_fd(), launched.machine->bulk_fd(),
                                 when_live(options.link_callbacks, live)));
  auto ready = set_up(options, launched, deadline);
  if (ready) {
    *live = true;
    return launched;
  }
  Error error = std::move(ready).error();
  if (launched.link->broken()) {
    // The ports close a moment before the process is reaped.
    [[maybe_unused]] const auto waited =
        loop_.run_until([&] { return ended->has_value(); }, Clock::now() + kEndGrace);
    if (*ended) error.message += ": " + (*ended)->reason;
  }
  if (const std::string tail = console_excerpt(launched.machine->console_tail()); !tail.empty())
    error.message += "\nThe guest's console ends with:\n" + tail;
  return std::unexpected(std::move(error));
}

Status Launcher::start_machine(const Options& options, Launched& launched, Deadline deadline) {
  if (launched.machine) {
    DRUPE_ASSIGN(SavedMachine saved, open_saved(dir_, *record_.saved, record_.shape.memory_mib * kMebibyte));
    return launched.machine->restore(std::move(saved), deadline);
  }
  DRUPE_ASSIGN(LaunchSpec spec, make_spec(options, launched));
  // It reads its policy while the machine starts. What it resets in a child must reach the card, which takes
  // frames for the child's address only once the agent has set it.
  const bool at_once = options.mode != LaunchMode::kForkChild;
  if (at_once) DRUPE_TRY(begin_network(options, launched, deadline));
  DRUPE_ASSIGN(launched.machine, hypervisor_.launch(loop_, std::move(spec), deadline));
  return {};
}

Status Launcher::prepare(Deadline deadline) {
  Launched begun;
  LaunchSpec card;
  DRUPE_TRY(make_card(card, begun));
  DRUPE_ASSIGN(begun.machine, prepare(std::move(card.net), deadline));
  prepared_ = std::move(begun);
  prepared_chain_ = record_.disk_chain;
  prepared_bytes_ = record_.disk_bytes;
  mark("prepared");
  return {};
}

Result<std::unique_ptr<Machine>> Launcher::prepare(UniqueFd net_end, Deadline deadline) {
  fresh_top_ = true;
  LaunchSpec spec;
  spec.shape = record_.shape;
  spec.mac = kMac;
  spec.net = std::move(net_end);
  DRUPE_TRY(add_base(spec));
  DRUPE_TRY(add_disk(spec, /*restore=*/true));
  return hypervisor_.prepare(loop_, std::move(spec), deadline);
}

Result<LaunchSpec> Launcher::make_spec(const Options& options, Launched& launched) {
  LaunchSpec spec;
  spec.shape = record_.shape;
  spec.mac = kMac;
  if (!restores(options.mode)) {
    DRUPE_ASSIGN(spec.kernel, open_at(dir_, kKernelFile, O_RDONLY | O_NOFOLLOW));
    DRUPE_ASSIGN(spec.initramfs, open_at(dir_, kInitramfsFile, O_RDONLY | O_NOFOLLOW));
  }
  DRUPE_TRY(add_memory(spec, restores(options.mode)));
  DRUPE_TRY(add_disk(spec, restores(options.mode)));
  DRUPE_TRY(make_card(spec, launched));
  return spec;
}

Status Launcher::make_card(LaunchSpec& spec, Launched& launched) {
  int pair[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0)
    return fail_sys("Creating the network interface's socket failed", errno);
  spec.net = UniqueFd(pair[0]);
  launched.net_peer = UniqueFd(pair[1]);
  DRUPE_ASSIGN(launched.net_end, duplicate(spec.net.get()));
  return {};
}

Status Launcher::begin_network(const Options& options, Launched& launched, Deadline deadline) {
  if (!options.make_network) return {};
  DRUPE_ASSIGN(UniqueFd frames, duplicate(launched.net_peer.get()));
  launched.network = options.make_network(std::move(frames));
  auto begun = launched.network->begin(deadline);
  network_failed_ = !begun;
  return begun;
}

Status Launcher::set_up_network(const Options& options, Launched& launched, Deadline deadline) {
  if (options.mode == LaunchMode::kForkChild) DRUPE_TRY(begin_network(options, launched, deadline));
  const bool was_up = restores(options.mode) && record_.saved && record_.saved->link_up;
  // One that had a network before it was paused, and has none any more.
  if (!launched.network) return was_up ? lower_link(*launched.machine, *launched.link, deadline) : Status();
  auto up = raise_link(*launched.machine, *launched.link, *launched.network, record_, !was_up, deadline);
  network_failed_ = !up;
  mark("network");
  return up;
}

Status Launcher::add_memory(LaunchSpec& spec, bool restore) {
  // A boot starts with zero memory and what the guest then has is its own: the base is the empty file again.
  if (!restore) record_.base_ram_file.clear();
  DRUPE_TRY(add_base(spec));
  if (!restore) return {};
  DRUPE_ASSIGN(SavedMachine saved, open_saved(dir_, *record_.saved, record_.shape.memory_mib * kMebibyte));
  spec.device_state = std::move(saved.device_state);
  spec.memory.delta = std::move(saved.delta);
  spec.memory.extents = std::move(saved.extents);
  return {};
}

Status Launcher::add_base(LaunchSpec& spec) {
  if (record_.base_ram_file.empty()) {
    DRUPE_ASSIGN(spec.memory.base, zero_memory(dir_, record_.shape.memory_mib * kMebibyte));
  } else {
    DRUPE_ASSIGN(spec.memory.base, open_at(dir_, record_.base_ram_file, O_RDONLY | O_NOFOLLOW));
  }
  return {};
}

Status Launcher::add_disk(LaunchSpec& spec, bool restore) {
  const auto& chain = record_.disk_chain;
  if (chain.size() < 2) return fail(ErrorCode::kIntegrity, "The sandbox's record names no disk");
  device_bytes_ = 0;
  for (std::size_t i = 0; i + 1 < chain.size(); ++i) {
    DiskNode node;
    node.format = i == 0 ? DiskFormat::kRaw : DiskFormat::kQcow2;
    DRUPE_ASSIGN(node.fd, open_at(dir_, chain[i], O_RDONLY | O_NOFOLLOW));
    DRUPE_ASSIGN(const std::uint64_t bytes, disk_node_bytes(node.fd.get(), node.format));
    device_bytes_ = std::max(device_bytes_, bytes);
    spec.disk.push_back(std::move(node));
  }
  if (record_.disk_bytes < device_bytes_) record_.disk_bytes = device_bytes_;
  // A restored guest knows the size it had at the save; it is grown when it runs.
  spec.disk_bytes = restore ? device_bytes_ : record_.disk_bytes;
  DiskNode top;
  DRUPE_ASSIGN(top.fd, open_at(dir_, chain.back(), O_RDWR | O_CREAT | O_NOFOLLOW));
  struct stat info{};
  if (::fstat(top.fd.get(), &info) != 0) return fail_sys("Looking at the sandbox's disk failed", errno);
  // Every node that others build on has links in their directories: writing it would change all their disks.
  if (info.st_nlink != 1)
    return fail(ErrorCode::kIntegrity, "The sandbox's writable disk node belongs to other sandboxes too");
  // A restore continues a disk that stood still: whatever an attempt before this one wrote must go.
  if (fresh_top_ || info.st_size == 0) {
    if (::ftruncate(top.fd.get(), 0) != 0)
      return fail_sys("Emptying the sandbox's new disk node failed", errno);
    DRUPE_TRY(write_empty_qcow2(top.fd.get(), spec.disk_bytes, layout_for(chain.size())));
  }
  spec.disk.push_back(std::move(top));
  return {};
}

Status Launcher::set_up_trust(const Options& options, GuestLink& link, Deadline deadline) {
  auto given = give_trust(loop_, link, options.trust, deadline);
  if (given) return given;
  trust_failed_ = given.error().code != ErrorCode::kTimeout;
  // A disk that the guest has filled or bent must not keep its owner from starting the sandbox.
  if (options.mode != LaunchMode::kBoot || !trust_failed_ || link.broken()) return given;
  notes_.push_back(given.error().message + "; it trusts those that it had");
  return {};
}

Status Launcher::set_up(const Options& options, Launched& launched, Deadline deadline) {
  Machine& machine = *launched.machine;
  GuestLink& link = *launched.link;
  DRUPE_TRY(link.handshake(new_epoch(), deadline));
  DRUPE_ASSIGN(const std::string hello_bytes, link.call(RequestKind::kHello, {}, deadline));
  DRUPE_ASSIGN(const HelloReply hello, HelloReply::decode(as_bytes(hello_bytes)));
  if (hello.protocol_version != kProtocolVersion)
    return fail(ErrorCode::kMemoryIncompatible,
                "The guest's agent speaks version " + std::to_string(hello.protocol_version) +
                    " of the protocol, this program version " + std::to_string(kProtocolVersion),
                "Start it cold: `drupe start`.");
  mark("agent");
  DRUPE_TRY(send_identity(link, record_, options.mode != LaunchMode::kResume, deadline));
  if (options.before_thaw && !may_run_) {
    DRUPE_TRY(options.before_thaw(deadline));
    may_run_ = true;
    mark("parent");
  }
  DRUPE_TRY(set_up_network(options, launched, deadline));
  if (restores(options.mode)) DRUPE_TRY(link.call(RequestKind::kThaw, {}, deadline));
  if (record_.disk_bytes > device_bytes_) {
    if (restores(options.mode)) DRUPE_TRY(machine.grow_disk(record_.disk_bytes, deadline));
    // The guest learns of the new size a moment later; the agent waits for it.
    DRUPE_TRY(link.call(RequestKind::kGrowRoot, ByteWriter().number(record_.disk_bytes).bytes(), deadline));
  }
  // A guest that goes on has them already.
  if (!options.trust.empty() &&
      (options.mode == LaunchMode::kBoot || options.mode == LaunchMode::kFromBase)) {
    DRUPE_TRY(set_up_trust(options, link, deadline));
    mark("trust");
  }
  mark("setup");
  return {};
}

}  // namespace drupe
