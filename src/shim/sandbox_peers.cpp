// The sandbox's private networks: what it is told of them, and channels to their members.
#include <sys/epoll.h>
#include <sys/socket.h>

#include "base/log.h"
#include "shim/network_link.h"
#include "shim/sandbox.h"

namespace drupe {
namespace {

constexpr std::chrono::seconds kSetDeadline{20};
constexpr std::chrono::seconds kConnectDeadline{5};
/// A network process has no more members to ask for than there may be, each once.
constexpr std::size_t kMaxWanted = 256;

}  // namespace

Result<std::string> Sandbox::set_networks(ByteView body) {
  DRUPE_ASSIGN(const std::string bytes, take_request_file(body));
  DRUPE_ASSIGN(NetworksRequest request, NetworksRequest::decode(as_bytes(bytes)));
  const Deadline deadline = Clock::now() + kSetDeadline;
  NetSpec spec = std::move(request.spec);
  if (network_) {
    NetSpec now = spec_.net;
    now.networks = std::move(spec.networks);
    spec = std::move(now);
  }
  if (!network_ || !has_network(record_, spec)) {
    // Without any, the last one's end is the network process's; with the first one it begins.
    if (network_ || has_network(record_, spec)) DRUPE_TRY(apply_network(record_, spec, deadline));
  } else {
    // One that is about to be started again knows them then; one that fails to answer has closed nothing, and
    // whoever was taken out must not come back with the next.
    network_->config().networks = spec.networks;
    if (network_->running())
      DRUPE_TRY(
          network_->call(net::NetRequest::kSetNetworks, net::SetNetworks{spec.networks}.encode(), deadline));
  }
  spec_.net = std::move(spec);
  return std::string();
}

// Without a network process nobody takes what members connect, and they would wait for it.
void Sandbox::turn_peers_away(bool away) {
  if (away == peers_turned_away_ || !peer_listener_.valid()) return;
  peers_turned_away_ = away;
  if (!away) return loop_.unwatch(peer_listener_.get());
  const auto watched = loop_.watch(peer_listener_.get(), EPOLLIN, [this](std::uint32_t) {
    const UniqueFd closed(::accept4(peer_listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  });
  if (!watched) log(LogLevel::kWarning, watched.error().message);
}

void Sandbox::on_network_event(ByteView payload) {
  ByteReader reader(payload);
  const auto kind = reader.number<std::uint16_t>();
  if (!reader.ok() || kind != static_cast<std::uint16_t>(net::NetEvent::kWantPeer)) return;
  const auto peer = net::PeerId::decode(reader.rest());
  if (!peer || wanted_peers_.size() >= kMaxWanted) return;
  wanted_peers_.push_back(*peer);
  // Before the network is the sandbox's, whoever starts it waits in calls of its own.
  if (network_) run_operation([](const Result<std::string>&) {}, [this] { return answer_wanted_peer(); });
}

void Sandbox::answer_wanted_peers() {
  for (std::size_t i = 0; i < wanted_peers_.size(); ++i)
    run_operation([](const Result<std::string>&) {}, [this] { return answer_wanted_peer(); });
}

Result<std::string> Sandbox::answer_wanted_peer() {
  if (wanted_peers_.empty()) return std::string();
  net::PeerChannelGrant grant;
  grant.peer = std::move(wanted_peers_.front());
  wanted_peers_.pop_front();
  Result<UniqueFd> socket = fail(ErrorCode::kUnsupported, "Private networks are not offered here");
  if (host_.connect_peer) socket = host_.connect_peer(grant.peer.encode(), Clock::now() + kConnectDeadline);
  // Its process has ended meanwhile: the next one asks again.
  if (!network_ || !network_->running()) return std::string();
  grant.connected = socket.has_value();
  network_->request(
      net::NetRequest::kPeerChannel, grant.encode(), [](const Result<std::string>&) {},
      socket ? std::move(*socket) : UniqueFd());
  return std::string();
}

}  // namespace drupe
