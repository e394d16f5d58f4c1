// The sandbox's network: its process, its policy, and what a save keeps of it.
#include <algorithm>
#include <cstring>

#include <fcntl.h>
#include <unistd.h>

#include "base/files.h"
#include "base/log.h"
#include "shim/network_link.h"
#include "shim/sandbox.h"

namespace drupe {
namespace {

constexpr std::size_t kMaxNetSet = 32U << 20;
constexpr std::size_t kMaxFlows = 8U << 20;
constexpr std::chrono::seconds kSetDeadline{20};
constexpr std::chrono::seconds kLinkDeadline{5};
constexpr std::chrono::seconds kResolversDeadline{5};
/// The guest's work stands still meanwhile.
constexpr std::chrono::seconds kNoteDeadline{1};
constexpr std::chrono::minutes kRestartWindow{1};
constexpr std::size_t kMostRestarts = 5;
/// What a reply's head takes of a frame.
constexpr std::size_t kReplyHead = 64;

std::string flows_name(const SavedState& saved) {
  return "flows-" + saved.delta_file.substr(saved.delta_file.find('-') + 1);
}

Error no_network() {
  return Error{ErrorCode::kInvalidState, "The sandbox has no network",
               "drupe net set --net open or --allow RULE gives it one.", 0};
}

}  // namespace

std::unique_ptr<Network> Sandbox::make_network(const SandboxRecord& record, const NetSpec& spec,
                                               UniqueFd frames) {
  std::string flows;
  // A guest that boots has no connections.
  if (record.saved && !record.saved->flows_file.empty() && spec_.mode != LaunchMode::kBoot) {
    if (auto read = read_file(host_.dir, record.saved->flows_file, kMaxFlows))
      flows = std::move(*read);
    else
      log(LogLevel::kWarning, "Connections of before are not reset: " + read.error().message);
  }
  const auto start = [this](UniqueFd log, UniqueFd end, Deadline deadline) -> Result<StartedHelper> {
    if (!host_.start_network) return fail(ErrorCode::kUnsupported, "This sandbox can have no network");
    return host_.start_network(std::move(log), std::move(end), deadline);
  };
  auto network =
      std::make_unique<Network>(loop_, start, std::move(frames), net_config(record, spec, std::move(flows)));
  network->use_peer_listener(peer_listener_.get());
  turn_peers_away(false);
  wanted_peers_.clear();
  network->on_event([this](ByteView payload) { on_network_event(payload); });
  return network;
}

void Sandbox::adopt_network(std::unique_ptr<Network> network) {
  network_ = std::move(network);
  if (!network_) return;
  add_missing(record_, network_->confinement_missing());
  // As an operation, and so never from within a call of the network's own, which a restart may destroy.
  const auto restart = [this] {
    run_operation([](const Result<std::string>&) {}, [this] { return restart_network(); });
  };
  network_->on_end([this, restart](const std::string& reason) {
    note_usage();
    log(LogLevel::kWarning, "The network process has ended (" + reason + "); it is started again");
    wanted_peers_.clear();
    restart();
  });
  if (!network_->running()) restart();  // It ended while nobody listened.
  answer_wanted_peers();
  follow_resolvers();
}

// What it may reach stays the same; where it asks for names does not.
void Sandbox::follow_resolvers() {
  if (resolver_watch_ || !spec_.net.follow_resolvers || !host_.open_resolvers) return;
  auto watch = ResolverWatch::create(loop_, kResolvConf, [this] {
    run_operation([](const Result<std::string>&) {}, [this] { return refresh_resolvers(); });
  });
  if (watch)
    resolver_watch_ = std::move(*watch);
  else
    log(LogLevel::kWarning, watch.error().message + "; the sandbox keeps those that it has");
}

Result<std::string> Sandbox::refresh_resolvers() {
  if (!network_ || !spec_.net.follow_resolvers) return std::string();
  const Deadline deadline = Clock::now() + kResolversDeadline;
  // A file that is gone for a moment says nothing.
  DRUPE_ASSIGN(const UniqueFd file, host_.open_resolvers(deadline));
  DRUPE_ASSIGN(const std::string text, read_all(file.get(), kMaxResolvConf));
  net::SetResolvers request{resolvers_of(text)};
  if (!network_ || request.resolvers == network_->config().resolvers) return std::string();
  log(LogLevel::kInfo, "The host's resolvers have changed");
  spec_.net.resolvers = network_->config().resolvers = request.resolvers;
  if (!network_->running()) return std::string();
  return network_->call(net::NetRequest::kSetResolvers, request.encode(), deadline);
}

Result<std::string> Sandbox::restart_network() {
  if (!network_ || network_->running()) return std::string();
  const auto now = Clock::now();
  std::erase_if(network_restarts_, [now](auto at) { return now - at > kRestartWindow; });
  const Deadline deadline = now + kSetDeadline;
  Status up = fail(ErrorCode::kHost, "It has ended too often");
  if (network_restarts_.size() < kMostRestarts) {
    network_restarts_.push_back(now);
    up = network_->begin(deadline);
    if (up) up = network_->await_ready(deadline);
  }
  if (up) return std::string();
  log(LogLevel::kError, "The sandbox has lost its network: " + up.error().message);
  // A process that could not be configured serves nobody, and without it the next policy begins with a new
  // one.
  network_.reset();
  turn_peers_away(true);
  if (auto told = lower_link(*machine_, *link_, Clock::now() + kLinkDeadline); !told)
    log(LogLevel::kWarning, "The guest was not told that its network is gone: " + told.error().message);
  return std::unexpected(std::move(up).error());
}

void Sandbox::note_usage() {
  if (network_) record_.network.used_bytes = std::max(record_.network.used_bytes, network_->used_bytes());
}

void Sandbox::note_network(SavedState& saved) {
  if (!network_) return;
  saved.link_up = true;
  const Deadline deadline = Clock::now() + kNoteDeadline;
  note_usage();
  auto flows = network_->call(net::NetRequest::kFlows, {}, deadline);
  Status written;
  if (!flows)
    written = std::unexpected(std::move(flows).error());
  else if (flows->size() > kMaxFlows)
    written = fail(ErrorCode::kLimit, "There are too many");
  else
    written = replace_file(host_.dir, flows_name(saved), *flows, Sync::kNo);
  if (written)
    saved.flows_file = flows_name(saved);
  else
    log(LogLevel::kWarning, "Connections will not be reset after this save: " + written.error().message);
}

void Sandbox::on_net_request(net::NetRequest kind, ByteView body, const ReplyFn& reply) {
  if (!network_) return reply(std::unexpected(no_network()));
  network_->request(kind, as_text(body), [reply](Result<std::string> answer) {
    if (answer && answer->size() > kMaxPayload - kReplyHead)
      answer = fail(ErrorCode::kLimit, "The network process's answer is longer than a frame",
                    "Ask for fewer entries.");
    reply(std::move(answer));
  });
}

Result<std::string> Sandbox::take_request_file(ByteView body) {
  ByteReader reader(body);
  const std::string name = reader.text();
  if (!reader.done() || !name.starts_with(kNetSetFile) || name.find('/') != std::string::npos)
    return fail(ErrorCode::kInvalidArgument, "The request does not name a file of the sandbox");
  auto bytes = read_file(host_.dir, name, kMaxNetSet);
  ::unlinkat(host_.dir, name.c_str(), 0);
  return bytes;
}

Result<std::string> Sandbox::set_policy(ByteView body) {
  DRUPE_ASSIGN(const std::string bytes, take_request_file(body));
  DRUPE_ASSIGN(NetSetRequest request, NetSetRequest::decode(as_bytes(bytes)));
  SandboxRecord wanted = record_;
  request.network.used_bytes = record_.network.used_bytes;
  wanted.network = std::move(request.network);
  request.spec.networks = spec_.net.networks;
  // A process that is started again meanwhile, or after a failure, is given what was in force.
  DRUPE_TRY(apply_network(wanted, request.spec, Clock::now() + kSetDeadline));
  spec_.net = std::move(request.spec);
  if (removes_itself_now()) return fail(ErrorCode::kInvalidState, "The sandbox is ending");
  // The record as it is now: its command may have started or ended meanwhile.
  SandboxRecord updated = record_;
  updated.network = std::move(wanted.network);
  updated.network.used_bytes = record_.network.used_bytes;
  DRUPE_TRY(write_record(host_.dir, updated));
  record_ = std::move(updated);
  return std::string();
}

// The guest's programs learn it by resets, as with any other policy, and not by time-outs of their own. What
// fails here changes nothing about what passes.
void Sandbox::end_connections(const NetSpec& spec, Deadline deadline) {
  if (!network_->running()) return;
  net::SetPolicy nothing;
  nothing.policy = spec.policy;
  nothing.unpublish = true;
  static_cast<void>(network_->call(net::NetRequest::kSetPolicy, nothing.encode(), deadline));
  static_cast<void>(network_->call(net::NetRequest::kSetNetworks, net::SetNetworks{}.encode(), deadline));
  // The resets are on their way to the card. What the guest answers to later has come through the same loop
  // of the hypervisor's, after them.
  static_cast<void>(link_->call(RequestKind::kPing, {}, std::min(deadline, Clock::now() + kLinkDeadline)));
}

// When this returns, nothing passes that the new policy refuses.
Status Sandbox::apply_network(const SandboxRecord& updated, const NetSpec& spec, Deadline deadline) {
  if (!has_network(updated, spec)) {
    if (!network_) return {};
    note_usage();
    end_connections(spec, deadline);
    network_.reset();
    DRUPE_TRY(machine_->set_link(false, deadline));
    // The cable is out; a guest whose agent does not answer learns that from its time-outs.
    if (auto told = lower_link(*machine_, *link_, deadline); !told)
      log(LogLevel::kWarning, "The guest was not told that its network is gone: " + told.error().message);
    return {};
  }
  if (network_ && network_->running()) {
    const bool unpublish = updated.network.mode == NetworkMode::kNone;
    if (!unpublish && updated.network.publications != record_.network.publications)
      return fail(ErrorCode::kUnsupported, "Published ports cannot change while the sandbox runs",
                  "Stop or pause it first.");
    net::SetPolicy request;
    request.policy = spec.policy;
    request.quota_bytes = updated.network.quota_bytes;
    request.unpublish = unpublish;
    DRUPE_TRY(network_->call(net::NetRequest::kSetPolicy, request.encode(), deadline));
    // For the process that may take its place.
    network_->config().policy = request.policy;
    network_->config().quota_bytes = request.quota_bytes;
    network_->config().publications = updated.network.publications;
    return {};
  }
  UniqueFd frames(::fcntl(net_peer_.get(), F_DUPFD_CLOEXEC, 0));
  if (!frames.valid()) return fail_sys("Copying a descriptor failed", errno);
  auto network = make_network(updated, spec, std::move(frames));
  DRUPE_TRY(network->begin(deadline));
  if (auto up = raise_link(*machine_, *link_, *network, updated, /*names=*/true, deadline); !up) {
    static_cast<void>(machine_->set_link(false, Clock::now() + kLinkDeadline));
    return up;
  }
  adopt_network(std::move(network));
  return {};
}

}  // namespace drupe
