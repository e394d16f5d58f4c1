#include "net/program/net_process.h"

#include <algorithm>
#include <cerrno>

#include <sys/random.h>

#include "base/log.h"
#include "net/policy/name.h"
#include "net/program/saved_net.h"
#include "protocol/messages.h"

namespace drupe::net {
namespace {

// Locally administered; the same in every process, so that a resumed guest's neighbour table stays right.
constexpr MacAddress kGatewayMac{{0x02, 0x64, 0x72, 0x75, 0x70, 0x65}};
constexpr std::size_t kMaxResolvers = 16;
constexpr std::size_t kMaxSearchDomains = 64;
// Of the lines of one page; a record has room for more.
constexpr std::size_t kMaxPage = std::size_t{4} << 20;

std::int64_t wall_clock_ms() {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::milliseconds>(now).count();
}

Result<PacketAddress> address_of(const std::string& text, const char* whose, bool v6) {
  const auto address = packet_address(text);
  if (address && address->v6 == v6) return *address;
  return fail(ErrorCode::kInvalidArgument,
              std::string("The ") + whose + "'s address is no IPv" + (v6 ? "6" : "4") + " address");
}

Result<StackConfig> stack_config(const NetConfig& config) {
  StackConfig out;
  out.guest_mac.bytes = config.mac;
  out.gateway_mac = kGatewayMac;
  if (out.guest_mac == kGatewayMac) ++out.gateway_mac.bytes.back();
  out.mtu = config.mtu;
  DRUPE_ASSIGN(out.guest_v4, address_of(config.guest_v4, "guest", false));
  DRUPE_ASSIGN(out.gateway_v4, address_of(config.gateway_v4, "gateway", false));
  if (!config.guest_v6.empty() || !config.gateway_v6.empty()) {
    DRUPE_ASSIGN(out.guest_v6, address_of(config.guest_v6, "guest", true));
    DRUPE_ASSIGN(out.gateway_v6, address_of(config.gateway_v6, "gateway", true));
  }
  // An inspector holds up to kMaxHeld, and half of a buffer counts as full.
  out.tcp.max_connections = 1536;
  out.tcp.smallest_buffer = std::size_t{2} * kMaxHeld;
  if (::getrandom(&out.secret, sizeof out.secret, 0) != sizeof out.secret)
    return fail_sys("Drawing a random number failed", errno);
  return validated(out);
}

Result<std::vector<Endpoint>> resolvers_of(const std::vector<std::string>& texts) {
  if (texts.size() > kMaxResolvers)
    return fail(ErrorCode::kLimit,
                "More than " + std::to_string(kMaxResolvers) + " resolvers are configured");
  std::vector<Endpoint> out;
  for (const std::string& text : texts) {
    const auto endpoint = parse_endpoint(text, kDnsPort);
    if (!endpoint)
      return fail(ErrorCode::kInvalidArgument, "The resolver '" + text + "' is no numeric address");
    out.push_back(*endpoint);
  }
  return out;
}

dns::Proxy::Options proxy_options(const NetConfig& config) {
  dns::Proxy::Options options;
  for (const std::string& domain : config.search)
    if (auto normal = normal_name(domain); normal && options.search_domains.size() < kMaxSearchDomains)
      options.search_domains.push_back(*std::move(normal));
  return options;
}

}  // namespace

struct NetProcess::Running {
  Running(NetProcess& process, std::vector<Endpoint> servers, std::shared_ptr<const Policy> policy,
          dns::Proxy::Options options)
      : resolver(process.loop_, std::move(servers), policy, process.pins_, process.log_, std::move(options)),
        publisher(process.loop_, process.quota_),
        peers({process.loop_, process.log_, process.quota_,
               [&process](const PeerId& peer) { process.want_peer(peer); }}),
        gate({process.loop_, process.pins_, process.log_, resolver, publisher, peers, process.quota_,
              process.ledger_},
             std::move(policy)) {}
  void set_members(const std::vector<PeerEntry>& entries) {
    resolver.set_local_names(peer_names(entries));
    peers.set_members(entries);
  }
  Resolver resolver;
  Publisher publisher;
  Peers peers;
  PolicyGate gate;
  std::unique_ptr<Driver> driver;
};

NetProcess::NetProcess(EventLoop& loop, UniqueFd control, UniqueFd link, LockDown lock_down)
    : loop_(loop),
      link_(std::move(link)),
      lock_down_(std::move(lock_down)),
      control_(
          loop, std::move(control), [this](std::uint32_t id, ByteView payload) { on_record(id, payload); },
          [this](Status why) {
            ended_ = std::move(why);
            loop_.stop();
          }),
      log_(wall_clock_ms) {}

NetProcess::~NetProcess() = default;

Status NetProcess::run() {
  DRUPE_TRY(control_.start());
  DRUPE_TRY(loop_.run());
  return ended_;
}

void NetProcess::on_record(std::uint32_t id, ByteView payload) {
  ByteReader reader(payload);
  const auto kind = reader.number<std::uint16_t>();
  auto answer = reader.ok() ? handle(kind, reader.rest())
                            : fail(ErrorCode::kIntegrity, "A request to the network process has no kind");
  std::string reply = answer ? encode_reply(*answer) : encode_error_reply(answer.error());
  // Behind what the request has queued: resets of connections that ended leave for the guest first.
  loop_.defer([this, id, reply = std::move(reply)] { control_.send(id, reply); });
}

Result<std::string> NetProcess::handle(std::uint16_t kind, ByteView body) {
  const auto request = static_cast<NetRequest>(kind);
  if (request == NetRequest::kConfigure) return configure(body);
  if (!running_) return fail(ErrorCode::kInvalidState, "The network process is not configured");
  switch (request) {
    case NetRequest::kSetPolicy:
      return set_policy(body);
    case NetRequest::kReadLog:
      return read_log(body);
    case NetRequest::kCounters:
      return counters();
    case NetRequest::kFlows:
      return saved_net();
    case NetRequest::kSetNetworks:
      return set_networks(body);
    case NetRequest::kSetResolvers:
      return set_resolvers(body);
    case NetRequest::kPeerListener:
      return take_listener();
    case NetRequest::kPeerChannel:
      return take_channel(body);
    case NetRequest::kConfigure:
      break;
  }
  return fail(ErrorCode::kUnsupported, "The network process knows no request " + std::to_string(kind));
}

Result<std::shared_ptr<const Policy>> NetProcess::compile(const std::string& spec) {
  DRUPE_ASSIGN(const PolicySpec decoded, decode_spec(spec));
  return Policy::compile(decoded, host_->facts(), ++generation_);
}

Result<std::string> NetProcess::configure(ByteView body) {
  if (running_) return fail(ErrorCode::kInvalidState, "The network process is configured already");
  DRUPE_ASSIGN(const NetConfig config, NetConfig::decode(body));
  DRUPE_ASSIGN(const StackConfig stack, stack_config(config));
  DRUPE_ASSIGN(auto servers, resolvers_of(config.resolvers));
  DRUPE_ASSIGN(const auto members, peer_entries(config.networks));
  DRUPE_TRY(open_ledger(config));
  if (!host_) {
    DRUPE_ASSIGN(host_, HostWatch::create(loop_));
    host_->on_change([this] { host_changed(); });
  }
  DRUPE_ASSIGN(auto policy, compile(config.policy));
  auto running =
      std::make_unique<Running>(*this, std::move(servers), std::move(policy), proxy_options(config));
  DRUPE_TRY(running->publisher.listen(config.publications));
  if (!link_.valid())
    return fail(ErrorCode::kInvalidState, "The guest's link was lost by an earlier attempt");
  DRUPE_ASSIGN(running->driver, Driver::create(loop_, std::move(link_), stack, running->gate, running->gate));
  running->driver->on_broken([] { log(LogLevel::kInfo, "The guest's end of the link is closed"); });
  running->gate.attach(*running->driver);
  running->resolver.attach(*running->driver);
  running->peers.attach(*running->driver);
  running->set_members(members);
  DRUPE_TRY(running->publisher.start(running->driver->tcp(), stack.guest_v4, stack.gateway_v4));
  quota_.set(config.quota_bytes);
  quota_.use(config.used_bytes);
  ledger_.set_used(quota_.used());
  DRUPE_ASSIGN(NetReady ready, [&]() -> Result<NetReady> {
    DRUPE_ASSIGN(auto missing, lock_down_());
    return NetReady{std::move(missing)};
  }());
  for (const std::string& what : ready.confinement_missing)
    log(LogLevel::kWarning, "This host does not allow: " + what);
  spec_ = config.policy;
  running_ = std::move(running);
  go_on(config.flows);
  return ready.encode();
}

Status NetProcess::open_ledger(const NetConfig& config) {
  if (!config.ledger) return {};
  const UniqueFd memory = control_.take_descriptor();
  if (!memory.valid()) return fail(ErrorCode::kIntegrity, "A ledger was told of, and did not come");
  DRUPE_ASSIGN(ledger_, LedgerMap::open(memory));
  return {};
}

// Whoever wrote what an earlier life has left may have been taken over: it is read behind the lock.
void NetProcess::go_on(const std::string& saved) {
  TcpLayer& tcp = running_->driver->stack().tcp();
  LedgerRemains remains = ledger_.take();
  log_.on_entry([this](const LogEntry& entry) { ledger_.set_entry(entry); });
  log_.restore(std::move(remains.entries));
  tcp.on_standing([this](FlowId flow, const FlowKey* key) { ledger_.set_flow(flow, key); });
  tcp.reset_all(std::move(remains.flows));
  if (saved.empty()) return;
  const auto before = decode_saved_net(as_bytes(saved));
  if (!before)
    return log(LogLevel::kWarning, "Connections of before are not reset: " + before.error().message);
  pins_.restore(before->pins, std::chrono::steady_clock::now());
  tcp.reset_all(before->flows);
}

std::string NetProcess::saved_net() const {
  return encode_saved_net(
      {running_->driver->stack().tcp().flows(), pins_.saved(std::chrono::steady_clock::now())});
}

Result<std::string> NetProcess::set_policy(ByteView body) {
  DRUPE_ASSIGN(const SetPolicy request, SetPolicy::decode(body));
  DRUPE_ASSIGN(auto policy, compile(request.policy));
  spec_ = request.policy;
  running_->gate.set_policy(std::move(policy));
  quota_.set(request.quota_bytes);
  running_->gate.quota_changed();
  if (request.unpublish) running_->publisher.close();
  return std::string();
}

Result<std::string> NetProcess::set_networks(ByteView body) {
  DRUPE_ASSIGN(const SetNetworks request, SetNetworks::decode(body));
  DRUPE_ASSIGN(const auto members, peer_entries(request.networks));
  running_->set_members(members);
  return std::string();
}

Result<std::string> NetProcess::set_resolvers(ByteView body) {
  DRUPE_ASSIGN(const SetResolvers request, SetResolvers::decode(body));
  DRUPE_ASSIGN(auto servers, resolvers_of(request.resolvers));
  running_->resolver.set_servers(std::move(servers));
  return std::string();
}

Result<std::string> NetProcess::take_listener() {
  UniqueFd listener = control_.take_descriptor();
  if (!listener.valid()) return fail(ErrorCode::kIntegrity, "A listener was told of, and did not come");
  DRUPE_TRY(running_->peers.set_listener(std::move(listener)));
  return std::string();
}

Result<std::string> NetProcess::take_channel(ByteView body) {
  DRUPE_ASSIGN(const PeerChannelGrant grant, PeerChannelGrant::decode(body));
  UniqueFd socket;
  if (grant.connected) {
    socket = control_.take_descriptor();
    if (!socket.valid()) return fail(ErrorCode::kIntegrity, "A channel was told of, and did not come");
  }
  running_->peers.on_channel(grant.peer, std::move(socket));
  return std::string();
}

// Later: the guest's packets are being looked at.
void NetProcess::want_peer(const PeerId& peer) {
  loop_.defer([this, body = peer.encode()] {
    control_.send(kNetEventId,
                  ByteWriter().number(static_cast<std::uint16_t>(NetEvent::kWantPeer)).take() + body);
  });
}

void NetProcess::host_changed() {
  if (!running_) return;
  auto policy = compile(spec_);
  if (!policy) return log(LogLevel::kError, policy.error().message);
  running_->gate.set_policy(*std::move(policy));
}

Result<std::string> NetProcess::read_log(ByteView body) const {
  DRUPE_ASSIGN(const ReadLog request, ReadLog::decode(body));
  LogPage page;
  // A number that was not given yet is from an earlier process, whose entries are gone.
  page.last = request.after <= log_.last_sequence() ? request.after : 0;
  const auto entries = log_.read(page.last, request.limit);
  if (!entries.empty()) page.lost = entries.front().sequence - page.last - 1;
  std::size_t size = 0;
  for (const LogEntry& entry : entries) {
    std::string line = to_json_line(entry);
    size += line.size();
    if (size > kMaxPage) break;
    page.lines.push_back(std::move(line));
    page.last = entry.sequence;
  }
  return page.encode();
}

std::string NetProcess::counters() const {
  Driver& driver = *running_->driver;
  NetCounters out;
  out.bytes_out = driver.tcp().to_world() + driver.udp().to_world();
  out.bytes_in = driver.tcp().to_guest() + driver.udp().to_guest();
  out.connections = running_->gate.admitted() + running_->gate.refused();
  out.refused = running_->gate.refused();
  out.open_connections = driver.tcp().size();
  for (const std::uint64_t dropped : driver.stack().counters().dropped) out.dropped_frames += dropped;
  return out.encode();
}

}  // namespace drupe::net
