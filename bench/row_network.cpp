// Through drupe-net with a policy of fifty rules, against the same work over qemu's built-in user network.
#include <cstdlib>
#include <sstream>

#include "clone_files.h"
#include "guest_work.h"
#include "host_facts.h"
#include "hypervisor/qemu/qemu.h"
#include "net_server.h"
#include "user_network.h"

namespace drupe::bench {
namespace {

constexpr std::uint32_t kMemoryMib = 512;
constexpr int kRules = 50;
constexpr std::uint32_t kTransferMib = 64;
constexpr std::uint32_t kConnects = 40;
constexpr std::uint32_t kConcurrent = 1000;
constexpr double kMib = 1 << 20;

/// Fifty rules, of which the last admits the server.
NetworkOptions fifty_rules(const std::string& address, std::uint16_t port) {
  NetworkOptions options;
  options.mode = NetworkMode::kPolicy;
  for (int i = 1; i < kRules; ++i) options.allow.push_back("host" + std::to_string(i) + ".example.com:443");
  options.allow.push_back(address + ":" + std::to_string(port));
  options.allow_private.push_back(address + "/32");
  return options;
}

Result<std::unique_ptr<Guest>> start_guest(Bench& bench, const NetworkOptions& network) {
  SandboxOptions options;
  options.image = bench.settings.image;
  options.idle = true;
  options.detached = true;
  options.pull = PullPolicy::kNever;
  options.network = network;
  DRUPE_ASSIGN(const SandboxInfo made, bench.engine.create(options));
  auto guest = Guest::adopt(bench, made.record.id);
  DRUPE_TRY(bench.engine.start(made.record.id, false, false));
  DRUPE_TRY(guest->connect());
  DRUPE_TRY(guest->install("net-work"));
  return guest;
}

class Place {
 public:
  Place(Guest& guest, std::string address, std::uint16_t port)
      : guest_(guest), address_(std::move(address)), port_(port) {}
  Result<std::vector<double>> run(const std::string& command, std::uint32_t count) {
    DRUPE_ASSIGN(const ExecResult result, guest_.run({"/bench/net-work", address_, std::to_string(port_),
                                                      command, std::to_string(count)}));
    if (result.facts.exit_code != 0)
      return fail(ErrorCode::kGuest, "Through drupe-net, " + command + " failed: " + result.out);
    std::vector<double> numbers;
    std::istringstream text(result.out);
    for (double number = 0; text >> number;) numbers.push_back(number);
    return numbers;
  }

 private:
  Guest& guest_;
  std::string address_;
  std::uint16_t port_;
};

Line network_line(const char* what, const char* unit, Target target) {
  Line line;
  line.row = "network";
  line.what = what;
  line.unit = unit;
  line.yardstick_what = "qemu's built-in user network";
  line.target = target;
  return line;
}

/// One network_pid only: it is the sandbox's own.
Result<double> private_mib(Guest& guest) {
  DRUPE_ASSIGN(const ShimInfo info, guest.info());
  if (info.network_pid == 0) return fail(ErrorCode::kHost, "The sandbox has no network process");
  DRUPE_ASSIGN(const ProcessMemory memory, process_memory(info.network_pid));
  return static_cast<double>(memory.own) / kMib;
}

}  // namespace

Status row_network(Bench& bench) {
  DRUPE_ASSIGN(const std::string address, own_address());
  DRUPE_ASSIGN(const auto server, NetServer::listen(address));
  DRUPE_ASSIGN(const auto loopback, NetServer::listen("127.0.0.1"));
  DRUPE_ASSIGN(const auto guest, start_guest(bench, fifty_rules(address, server->port())));
  Line idle = network_line("idle drupe-net, private", "MiB", Target{0, 3});
  idle.yardstick_what.clear();
  DRUPE_ASSIGN(const double before, private_mib(*guest));
  idle.samples.push_back(before);
  DRUPE_ASSIGN(const BaseFiles base, find_base_files(bench, kMemoryMib));
  const char* chosen = std::getenv("DRUPE_GUEST_DIR");
  const UserNetwork::Files files{qemu_program(),
                                 chosen != nullptr ? chosen : bench.settings.binary_dir + "/../guest",
                                 bench.settings.tool_dir + "/net-init", bench.settings.scratch, base.tsc_khz};
  DRUPE_ASSIGN(const auto peer, UserNetwork::boot(files));
  Place place(*guest, address, server->port());

  Line connect = network_line("connect, 50 rules", "ms", Target{1.2, 0});
  Line download = network_line("download, 50 rules", "MiB/s", Target{1, 0, true});
  Line upload = network_line("upload, 50 rules", "MiB/s", Target{1, 0, true});
  DRUPE_TRY(place.run("connect", kConnects));
  DRUPE_TRY(peer->run("connect", loopback->port(), kConnects));
  for (std::uint32_t i = 0; i < bench.settings.bulk_samples; ++i) {
    DRUPE_ASSIGN(const auto ours, place.run("connect", kConnects));
    DRUPE_ASSIGN(const auto theirs, peer->run("connect", loopback->port(), kConnects));
    for (const double us : ours) connect.samples.push_back(us / 1000);
    for (const double us : theirs) connect.yardstick.push_back(us / 1000);
    for (Line* line : {&download, &upload}) {
      const char* command = line == &download ? "download" : "upload";
      DRUPE_ASSIGN(const auto fast, place.run(command, kTransferMib));
      DRUPE_ASSIGN(const auto yardstick, peer->run(command, loopback->port(), kTransferMib));
      line->samples.insert(line->samples.end(), fast.begin(), fast.end());
      line->yardstick.insert(line->yardstick.end(), yardstick.begin(), yardstick.end());
    }
  }
  Line held = network_line("connections open at once", "", Target{0, kConcurrent, true});
  held.yardstick_what.clear();
  DRUPE_ASSIGN(held.samples, place.run("hold", kConcurrent));
  DRUPE_ASSIGN(const double after, private_mib(*guest));
  idle.details = {{"after all of this, MiB", after}};
  for (Line* line : {&connect, &download, &upload, &held, &idle}) bench.report.add(std::move(*line));
  return {};
}

}  // namespace drupe::bench
