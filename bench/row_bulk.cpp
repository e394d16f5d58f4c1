// 1 GiB of stdout, upload and download against a raw copy over the same virtio port, with the host's memory
// watched and the agent pinged meanwhile.
#include <functional>

#include "clone_files.h"
#include "guest_work.h"
#include "host_facts.h"
#include "hypervisor/qemu/qemu.h"
#include "raw_port.h"

namespace drupe::bench {
namespace {

constexpr double kMib = 1 << 20;
constexpr double kShare = 0.5;
constexpr double kPingMs = 20;
constexpr double kFlatMib = 8;
constexpr std::chrono::milliseconds kPingEvery{50};
constexpr std::chrono::seconds kLimit{600};
constexpr std::size_t kChunk = 64 * 1024;
constexpr const char* kUploadPath = "/bench/upload";
constexpr const char* kDownloadPath = "/bench/download";

/// Pings over a connection of its own while a transfer runs, and looks at the shim's memory.
class Watcher {
 public:
  Watcher(Bench& bench, ShimClient& client, int shim_pid)
      : bench_(bench), client_(client), shim_pid_(shim_pid) {
    arm();
  }
  ~Watcher() {
    *alive_ = false;
    bench_.engine.loop().cancel(timer_);
  }
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;
  Samples pings;
  double most_mib = 0;

 private:
  void arm() {
    timer_ = bench_.engine.loop().after(kPingEvery, [this] { ping(); });
  }
  void ping() {
    if (const auto memory = process_memory(shim_pid_))
      most_mib = std::max(most_mib, static_cast<double>(memory->own) / kMib);
    client_.request(static_cast<std::uint16_t>(RequestKind::kPing), "p",
                    [this, alive = alive_, begun = Clock::now()](const Result<std::string>& reply) {
                      if (!*alive || !reply) return;
                      pings.push_back(ms_since(begun));
                      arm();
                    });
  }
  Bench& bench_;
  ShimClient& client_;
  int shim_pid_;
  EventLoop::TimerId timer_ = 0;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

/// Runs one stream to its end; `received` counts its output, `send` bytes go to its stdin.
Result<double> transfer(Bench& bench, ShimClient& client, const OpenRequest& request, std::uint64_t send,
                        std::uint64_t receive) {
  static const std::string block(kChunk, 'u');
  struct State {
    std::uint64_t received = 0, left = 0;
    bool ended = false, closed = false;
    std::optional<Error> error;
    ShimClient::StreamId stream = 0;
  };
  auto state = std::make_shared<State>();
  state->left = send;
  const auto feed = [&client, state] {
    while (state->left > 0) {
      const std::size_t took = client.write(
          state->stream, std::string_view(block).substr(0, std::min<std::uint64_t>(state->left, kChunk)));
      if (took == 0) return;
      state->left -= took;
    }
    if (!std::exchange(state->closed, true)) client.close_stdin(state->stream);
  };
  StreamHandler handler;
  handler.on_data = [state](Channel, std::string_view bytes) { state->received += bytes.size(); };
  if (send > 0) handler.on_writable = feed;
  handler.on_exit = [state](const ExitFacts& facts) {
    state->ended = true;
    state->error = facts.error;
  };
  handler.on_error = [state](const Error& error) {
    state->ended = true;
    state->error = error;
  };
  const auto begun = Clock::now();
  DRUPE_ASSIGN(state->stream, client.open(request, std::move(handler)));
  if (send > 0) feed();
  DRUPE_ASSIGN(const bool came,
               bench.engine.loop().run_until([&] { return state->ended; }, Clock::now() + kLimit));
  const double seconds = ms_since(begun) / 1000;
  if (!came) return fail(ErrorCode::kTimeout, "The transfer took too long");
  if (state->error) return std::unexpected(*state->error);
  if (state->received != receive)
    return fail(ErrorCode::kIntegrity, "The transfer brought " + std::to_string(state->received) + " bytes");
  return static_cast<double>(send + receive) / kMib / seconds;
}

struct Direction {
  const char* what;
  OpenRequest request;
  bool up = false;
};

std::vector<Direction> directions(std::uint32_t mib) {
  std::vector<Direction> all;
  OpenRequest exec;
  exec.exec.argv = {"/bench/burden", "out", std::to_string(mib)};
  all.push_back({"stdout", exec, false});
  OpenRequest write;
  write.kind = OpenKind::kWriteFile;
  write.file.path = kUploadPath;
  write.file.mode = 0600;
  all.push_back({"upload of a file", write, true});
  OpenRequest read;
  read.kind = OpenKind::kReadFile;
  read.file.path = kDownloadPath;
  all.push_back({"download of a file", read, false});
  return all;
}

Status measure(Bench& bench, Guest& guest, RawPort& raw, Direction direction) {
  const std::uint32_t mib = bench.settings.bulk_mib;
  DRUPE_ASSIGN(const ShimInfo info, guest.info());
  DRUPE_ASSIGN(const int shim_pid, parent_of(info.hypervisor_pid));
  DRUPE_ASSIGN(const ProcessMemory before, process_memory(shim_pid));
  DRUPE_ASSIGN(const auto second, bench.engine.connect(guest.id(), false));
  Line speed, ping, memory;
  speed.row = ping.row = memory.row = "bulk";
  speed.what = std::string(direction.what) + ", " + std::to_string(mib) + " MiB";
  speed.unit = "MiB/s";
  speed.yardstick_what = "raw copy over the same virtio port";
  speed.target = Target{kShare, 0, true};
  ping.what = std::string("ping during ") + direction.what;
  ping.target = Target{0, kPingMs};
  memory.what = std::string("shim's memory growth during ") + direction.what;
  memory.unit = "MiB";
  memory.target = Target{0, kFlatMib};
  for (std::uint32_t i = 0; i < bench.settings.bulk_samples; ++i) {
    direction.request.exec.exec_id = std::string("bulk") + direction.what[0] + std::to_string(i);
    const std::uint64_t bytes = std::uint64_t{mib} << 20;
    Watcher watcher(bench, *second, shim_pid);
    DRUPE_ASSIGN(const double rate, transfer(bench, guest.client(), direction.request,
                                             direction.up ? bytes : 0, direction.up ? 0 : bytes));
    speed.samples.push_back(rate);
    ping.samples.insert(ping.samples.end(), watcher.pings.begin(), watcher.pings.end());
    memory.samples.push_back(watcher.most_mib - static_cast<double>(before.own) / kMib);
    DRUPE_ASSIGN(const double yardstick, direction.up ? raw.send(mib / 4) : raw.receive(mib / 4));
    speed.yardstick.push_back(yardstick);
  }
  ping.details = {{"max", most(ping.samples)}};
  bench.report.add(std::move(speed));
  bench.report.add(std::move(ping));
  bench.report.add(std::move(memory));
  return {};
}

}  // namespace

Status row_bulk(Bench& bench) {
  DRUPE_ASSIGN(const BaseFiles base, find_base_files(bench));
  QemuOptions options;
  options.program = qemu_program();
  options.preload = base.preload;
  options.tsc_khz = base.tsc_khz;
  DRUPE_ASSIGN(const auto hypervisor, make_qemu_hypervisor(options));
  const char* chosen = std::getenv("DRUPE_GUEST_DIR");
  RawPort::Files files{chosen != nullptr ? chosen : bench.settings.binary_dir + "/../guest",
                       bench.settings.tool_dir + "/port-init", bench.settings.scratch};
  DRUPE_ASSIGN(const auto raw, RawPort::boot(bench.engine.loop(), *hypervisor, files));
  DRUPE_ASSIGN(const auto guest, Guest::start(bench));
  DRUPE_TRY(guest->install("burden"));
  // A sparse file: the row is about the port, not about reading the disk.
  DRUPE_TRY(guest->timed(
      {"/usr/bin/truncate", "-s", std::to_string(bench.settings.bulk_mib) + "M", kDownloadPath}));
  for (Direction& direction : directions(bench.settings.bulk_mib))
    DRUPE_TRY(measure(bench, *guest, *raw, std::move(direction)));
  return {};
}

}  // namespace drupe::bench
