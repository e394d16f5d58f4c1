// A sandbox with a network, over a fake machine and a network process of the test's own.
#include <csignal>
#include <cstring>
#include <deque>

#include <sys/epoll.h>

#include "base/spawn.h"
#include "protocol/net_ledger.h"
#include "shim/testing/sandbox_fixture.h"

namespace drupe::testing {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

/// Answers on the loop what a good network process answers; its pid is that of a program that does nothing.
struct FakeNetwork {
  explicit FakeNetwork(EventLoop& event_loop) : loop(event_loop) {}
  ~FakeNetwork() {
    if (control.valid()) loop.unwatch(control.get());
  }

  EventLoop& loop;
  int starts = 0;
  std::vector<net::NetConfig> configs;
  std::vector<net::SetPolicy> policies;
  std::vector<net::SetNetworks> networks;
  std::vector<net::PeerChannelGrant> grants;
  std::vector<std::string> resolvers;
  int listeners = 0;
  std::deque<UniqueFd> passed;                 ///< Descriptors that came and that no record has taken.
  std::optional<Error> refuse, refuse_policy;  ///< The configuration; any other policy.
  bool silent = false;
  std::string flows = "the flows";
  std::string log_reply = net::LogPage{{"{}"}, 1, 0}.encode();
  net::NetCounters counters{100, 200, 3, 1, 2, 0};
  UniqueFd control, frames, ledger;
  pid_t pid = 0;
  std::string in;

  Result<StartedHelper> start(UniqueFd link) {
    ++starts;
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends), 0);
    SpawnRequest request;
    request.program = "/bin/sleep";
    request.argv = {"sleep", "1000"};
    DRUPE_ASSIGN(ChildProcess child, spawn(request));
    pid = child.pid;
    if (control.valid()) loop.unwatch(control.get());
    control = UniqueFd(ends[1]);
    frames = std::move(link);
    in.clear();
    DRUPE_TRY(loop.watch(control.get(), EPOLLIN, [this](std::uint32_t) { receive(); }));
    return StartedHelper{std::move(child), {"something of the network"}, UniqueFd(ends[0])};
  }

  void receive() {
    char chunk[65536];
    iovec part{chunk, sizeof chunk};
    alignas(cmsghdr) char room[CMSG_SPACE(sizeof(int))];
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = room;
    message.msg_controllen = sizeof room;
    const ssize_t got = ::recvmsg(control.get(), &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
    if (const cmsghdr* header = got > 0 ? CMSG_FIRSTHDR(&message) : nullptr; header != nullptr) {
      int fd = -1;
      std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
      passed.emplace_back(fd);
    }
    if (got <= 0) return loop.unwatch(control.get());
    in.append(chunk, static_cast<std::size_t>(got));
    while (in.size() >= 8) {
      std::uint32_t head[2];
      std::memcpy(head, in.data(), sizeof head);
      if (in.size() < 4 + head[0]) return;
      const std::string payload = in.substr(8, head[0] - 4);
      in.erase(0, 4 + head[0]);
      if (silent) continue;
      const std::string reply = answer(payload);
      ByteWriter out;
      out.number(static_cast<std::uint32_t>(4 + reply.size())).number(head[1]);
      send_all(out.bytes() + reply);
    }
  }

  void send_all(std::string_view bytes) const {
    EXPECT_EQ(::send(control.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL),
              static_cast<ssize_t>(bytes.size()));
  }

  /// As its traffic counts.
  void use(std::uint64_t bytes) const {
    EXPECT_EQ(::pwrite(ledger.get(), &bytes, sizeof bytes, offsetof(net::Ledger, used_bytes)), 8);
  }
  bool take_passed() {
    if (passed.empty()) return false;
    passed.pop_front();
    return true;
  }
  void want_peer(const net::PeerId& peer) const {
    const std::string body = peer.encode();
    ByteWriter out;
    out.number(static_cast<std::uint32_t>(6 + body.size())).number(net::kNetEventId);
    out.number(static_cast<std::uint16_t>(net::NetEvent::kWantPeer));
    send_all(out.bytes() + body);
  }

  std::string answer(const std::string& payload) {
    const auto request = decode_request(as_bytes(payload)).value();
    switch (static_cast<net::NetRequest>(request.kind)) {
      case net::NetRequest::kConfigure:
        configs.push_back(net::NetConfig::decode(request.body).value());
        EXPECT_TRUE(configs.back().ledger && !passed.empty());
        ledger = std::move(passed.front());
        passed.pop_front();
        return refuse ? encode_error_reply(*refuse)
                      : encode_reply(net::NetReady{{"something more"}}.encode());
      case net::NetRequest::kSetPolicy:
        if (refuse_policy) return encode_error_reply(*refuse_policy);
        policies.push_back(net::SetPolicy::decode(request.body).value());
        return encode_reply("");
      case net::NetRequest::kReadLog:
        return encode_reply(log_reply);
      case net::NetRequest::kCounters:
        return encode_reply(counters.encode());
      case net::NetRequest::kFlows:
        return encode_reply(flows);
      case net::NetRequest::kSetNetworks:
        networks.push_back(net::SetNetworks::decode(request.body).value());
        return encode_reply("");
      case net::NetRequest::kSetResolvers:
        resolvers = net::SetResolvers::decode(request.body).value().resolvers;
        return encode_reply("");
      case net::NetRequest::kPeerListener:
        listeners += take_passed() ? 1 : 0;
        return encode_reply("");
      case net::NetRequest::kPeerChannel:
        grants.push_back(net::PeerChannelGrant::decode(request.body).value());
        EXPECT_TRUE(!grants.back().connected || take_passed());
        return encode_reply("");
    }
    return encode_error_reply(Error{ErrorCode::kUnsupported, "?", {}, 0});
  }
};

class SandboxNetwork : public SandboxFixture {
 protected:
  void SetUp() override {
    SandboxFixture::SetUp();
    network_ = std::make_unique<FakeNetwork>(*loop_);
    start_network_ = [this](UniqueFd, UniqueFd link, Deadline) { return network_->start(std::move(link)); };
  }
  void TearDown() override {
    client_.reset();
    sandbox_.reset();
    network_.reset();
    SandboxFixture::TearDown();
  }
  void use_network() {
    record_.network.mode = NetworkMode::kPolicy;
    record_.network.allow = {{"example.com", ""}};
    record_.network.publications = {{"127.0.0.1", 8080, 80}};
    record_.machine_id = "00112233445566778899aabbccddeeff";
    spec_.net.policy = "policy one";
    spec_.net.resolvers = {"192.0.2.53"};
    spec_.net.search = {"example.org"};
  }
  Result<std::string> set(NetworkRecord network, std::string policy) {
    NetSetRequest request;
    request.network = std::move(network);
    request.spec.policy = std::move(policy);
    const std::string file = std::string(kNetSetFile) + "1";
    EXPECT_TRUE(replace_file(dir_.get(), file, request.encode(), Sync::kNo));
    auto answer = call(ShimRequest::kNetSet, ByteWriter().text(file).bytes());
    EXPECT_FALSE(has(file.c_str()));
    return answer;
  }
  /// The last kSetNetwork that the guest got.
  std::optional<SetNetworkRequest> guest_network() {
    std::optional<SetNetworkRequest> last;
    for (const auto& request : agent().requests)
      if (request.kind == static_cast<std::uint16_t>(RequestKind::kSetNetwork))
        last = SetNetworkRequest::decode(as_bytes(request.body)).value();
    return last;
  }

  std::unique_ptr<FakeNetwork> network_;
};

TEST_F(SandboxNetwork, NoneStartsNothingAndAsksTheGuestNothing) {
  start();
  EXPECT_EQ(network_->starts, 0);
  EXPECT_EQ(agent().count(RequestKind::kSetNetwork), 0U);
  EXPECT_THAT(world_.calls, Not(Contains("link up")));
  EXPECT_EQ(call(ShimRequest::kNetLog).error().code, ErrorCode::kInvalidState);
}

TEST_F(SandboxNetwork, ThePolicyIsInForceBeforeTheLinkComesUpAndBeforeWorkThaws) {
  use_network();
  use_saved();
  record_.disk_chain = {"image.ext4", "disk-0.qcow2", "disk-1.qcow2"};
  start(LaunchMode::kFromBase);
  ASSERT_EQ(network_->configs.size(), 1U);
  const net::NetConfig& config = network_->configs.front();
  EXPECT_EQ(config.policy, "policy one");
  EXPECT_EQ(config.resolvers, spec_.net.resolvers);
  EXPECT_EQ(config.publications, record_.network.publications);
  EXPECT_EQ(config.mac, (std::array<std::uint8_t, 6>{2, 0, 0x11, 0x22, 0x33, 0x44}));
  EXPECT_THAT(world_.calls, Contains("link up"));
  const auto guest = guest_network();
  ASSERT_TRUE(guest);
  EXPECT_TRUE(guest->up);
  EXPECT_THAT(guest->resolv_conf, HasSubstr("search example.org\nnameserver " + config.gateway_v4));
  std::vector<std::uint16_t> kinds;
  for (const auto& request : agent().requests) kinds.push_back(request.kind);
  EXPECT_LT(std::ranges::find(kinds, static_cast<std::uint16_t>(RequestKind::kSetNetwork)),
            std::ranges::find(kinds, static_cast<std::uint16_t>(RequestKind::kThaw)));
  EXPECT_THAT(on_disk().confinement_missing, Contains("something of the network"));
  EXPECT_THAT(on_disk().confinement_missing, Contains("something more"));
}

TEST_F(SandboxNetwork, AConfigurationThatIsRefusedFailsTheStartOnce) {
  use_network();
  network_->refuse = Error{ErrorCode::kAlreadyExists, "The port 8080 is in use", {}, 0};
  const auto started = try_start(LaunchMode::kBoot);
  ASSERT_FALSE(started);
  EXPECT_THAT(started.error().message, HasSubstr("8080"));
  EXPECT_EQ(network_->starts, 1);
  EXPECT_THAT(world_.calls, Not(Contains("link up")));
}

TEST_F(SandboxNetwork, APolicyIsReplacedAndRecorded) {
  use_network();
  start();
  NetworkRecord network = record_.network;
  network.allow = {{"example.net", ""}};
  network.quota_bytes = 5;
  ASSERT_TRUE(set(network, "policy two"));
  ASSERT_EQ(network_->policies.size(), 1U);
  EXPECT_EQ(network_->policies.front().policy, "policy two");
  EXPECT_EQ(network_->policies.front().quota_bytes, 5U);
  EXPECT_EQ(on_disk().network, network);
  network.publications.clear();
  EXPECT_EQ(set(network, "policy three").error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(network_->policies.size(), 1U);
}

TEST_F(SandboxNetwork, ANetworkCanBeTakenAndGivenWhileTheSandboxRuns) {
  use_network();
  start();
  const pid_t first = network_->pid;
  ASSERT_TRUE(set({}, "policy none"));
  // Connections are reset before the process ends and the link goes down.
  ASSERT_EQ(network_->policies.size(), 1U);
  EXPECT_EQ(network_->policies.back().policy, "policy none");
  EXPECT_EQ(network_->networks.size(), 1U);
  EXPECT_EQ(world_.calls.back(), "link down");
  EXPECT_FALSE(guest_network()->up);
  EXPECT_NE(::kill(first, 0), 0);
  EXPECT_EQ(on_disk().network.mode, NetworkMode::kNone);
  NetworkRecord open;
  open.mode = NetworkMode::kOpen;
  ASSERT_TRUE(set(open, "open"));
  EXPECT_EQ(network_->configs.back().policy, "open");
  EXPECT_EQ(world_.calls.back(), "link up");
  EXPECT_TRUE(guest_network()->up);
  EXPECT_FALSE(guest_network()->resolv_conf.empty());
}

TEST_F(SandboxNetwork, ARequestNamesNoOtherFile) {
  use_network();
  start();
  for (const char* name : {"record.json", "network.tmp-/../../x", "../network.tmp-1", ""})
    EXPECT_FALSE(call(ShimRequest::kNetSet, ByteWriter().text(name).bytes())) << name;
  EXPECT_TRUE(has("record.json"));
}

TEST_F(SandboxNetwork, LogAndCountersArePassedOn) {
  use_network();
  start();
  EXPECT_EQ(call(ShimRequest::kNetLog, net::ReadLog{}.encode()).value(), network_->log_reply);
  EXPECT_EQ(call(ShimRequest::kNetCounters).value(), network_->counters.encode());
  network_->log_reply = std::string(kMaxPayload, 'x');
  EXPECT_EQ(call(ShimRequest::kNetLog, net::ReadLog{}.encode()).error().code, ErrorCode::kLimit);
}

TEST_F(SandboxNetwork, AKilledProcessIsStartedAgainWithThePolicyOfThatMoment) {
  use_network();
  start();
  NetworkRecord network = record_.network;
  network.deny = {{"bad.example", ""}};
  ASSERT_TRUE(set(network, "policy two"));
  network_->use(5000);
  ::kill(network_->pid, SIGKILL);
  ASSERT_TRUE(wait([&] { return network_->configs.size() == 2; }));
  EXPECT_EQ(network_->configs.back().policy, "policy two");
  EXPECT_EQ(network_->configs.back().used_bytes, 5000U);
  EXPECT_TRUE(wait([&] { return call(ShimRequest::kNetCounters).has_value(); }));
  EXPECT_EQ(on_disk().state, SandboxState::kRunning);
  // Whatever a process says, nothing is given back.
  network_->use(1);
  ::kill(network_->pid, SIGKILL);
  ASSERT_TRUE(wait([&] { return network_->configs.size() == 3; }));
  EXPECT_EQ(network_->configs.back().used_bytes, 5000U);
}

TEST_F(SandboxNetwork, APolicyThatFailsLeavesTheOneInForce) {
  use_network();
  start();
  network_->refuse_policy = Error{ErrorCode::kInvalidArgument, "Column 3", {}, 0};
  EXPECT_EQ(set(record_.network, "policy two").error().code, ErrorCode::kInvalidArgument);
  // The next process, and whoever joins a private network, goes on with the old one.
  ::kill(network_->pid, SIGKILL);
  ASSERT_TRUE(wait([&] { return network_->configs.size() == 2; }));
  EXPECT_EQ(network_->configs.back().policy, "policy one");
  EXPECT_TRUE(wait([&] { return call(ShimRequest::kNetCounters).has_value(); }));
  ASSERT_TRUE(set({}, "policy none"));
  network_->refuse = Error{ErrorCode::kHost, "No", {}, 0};
  NetworkRecord open;
  open.mode = NetworkMode::kOpen;
  EXPECT_FALSE(set(open, "open"));
  EXPECT_EQ(on_disk().network.mode, NetworkMode::kNone);
  network_->refuse.reset();
  ASSERT_TRUE(set(open, "open again"));
  EXPECT_EQ(network_->configs.back().policy, "open again");
}

TEST_F(SandboxNetwork, OneThatDiesAgainAndAgainLosesTheLinkNotTheSandbox) {
  use_network();
  start();
  for (int i = 1; i <= 6; ++i) {
    ASSERT_TRUE(wait([&] { return network_->starts == i; }));
    settle();
    ::kill(network_->pid, SIGKILL);
  }
  ASSERT_TRUE(wait([&] { return world_.calls.back() == "link down"; }));
  EXPECT_EQ(network_->starts, 6);
  EXPECT_TRUE(ping(*client_));
  // Members of its private networks do not wait for a process that is none any more.
  const UniqueFd peer(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strcpy(address.sun_path, "peer.sock");
  ASSERT_EQ(::connect(peer.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  char byte = 0;
  EXPECT_TRUE(wait([&] { return ::recv(peer.get(), &byte, 1, MSG_DONTWAIT) == 0; }));
}

TEST_F(SandboxNetwork, ABrokenProcessIsReplaced) {
  use_network();
  start();
  network_->send_all(std::string(8, '\xff'));
  EXPECT_TRUE(wait([&] { return network_->configs.size() == 2; }));
}

TEST_F(SandboxNetwork, APauseKeepsTheConnectionsForTheResumeToReset) {
  use_network();
  record_.network.quota_bytes = 1000;
  start();
  network_->use(300);
  ASSERT_TRUE(call(ShimRequest::kPause));
  serve();
  const SandboxRecord paused = on_disk();
  ASSERT_TRUE(paused.saved);
  EXPECT_TRUE(paused.saved->link_up);
  ASSERT_TRUE(has(paused.saved->flows_file.c_str()));
  EXPECT_EQ(paused.network.used_bytes, 300U);
  client_.reset();
  record_ = paused;
  start(LaunchMode::kResume);
  EXPECT_EQ(network_->configs.back().flows, "the flows");
  EXPECT_EQ(network_->configs.back().used_bytes, 300U);
  // What programs know stays: the guest's own file of resolvers too.
  EXPECT_TRUE(guest_network()->resolv_conf.empty());
  EXPECT_FALSE(has(paused.saved->flows_file.c_str()));
}

TEST_F(SandboxNetwork, APolicyTakenAwayDuringAPauseIsGoneAtTheResume) {
  use_network();
  start();
  ASSERT_TRUE(call(ShimRequest::kPause));
  serve();
  client_.reset();
  record_ = on_disk();
  record_.network = {};
  world_.calls.clear();
  start(LaunchMode::kResume);
  EXPECT_THAT(world_.calls, Contains("link down"));
  EXPECT_FALSE(guest_network()->up);
}

TEST_F(SandboxNetwork, AForkLeavesTheParentItsProcess) {
  use_network();
  start();
  const auto reply = call(ShimRequest::kSnapshot, SnapshotRequest().encode());
  ASSERT_TRUE(reply) << reply.error().message;
  const auto saved = SnapshotReply::decode(as_bytes(*reply)).value().saved;
  EXPECT_TRUE(saved.link_up);
  EXPECT_TRUE(has(saved.flows_file.c_str()));
  EXPECT_EQ(network_->starts, 1);
  EXPECT_TRUE(call(ShimRequest::kNetCounters));
}

std::vector<net::PeerNetwork> blue() {
  return {{"00000000000a",
           "blue",
           {{"000000000001", "one", "198.18.0.2"}, {"000000000002", "two", "198.18.0.3"}}}};
}

TEST_F(SandboxNetwork, APrivateNetworkAloneIsANetwork) {
  spec_.net.networks = blue();
  spec_.net.policy = "policy none";
  start();
  ASSERT_EQ(network_->configs.size(), 1U);
  EXPECT_EQ(network_->configs[0].networks, blue());
  EXPECT_EQ(network_->configs[0].policy, "policy none");
  EXPECT_TRUE(wait([&] { return network_->listeners == 1; }));
  EXPECT_TRUE(has("peer.sock"));
}

TEST_F(SandboxNetwork, PublishedPortsAreClosedWhenOnlyPrivateNetworksStay) {
  use_network();
  spec_.net.networks = blue();
  start();
  ASSERT_TRUE(set({}, "policy none"));
  ASSERT_EQ(network_->policies.size(), 1U);
  EXPECT_TRUE(network_->policies.back().unpublish);
  EXPECT_TRUE(on_disk().network.publications.empty());
  ::kill(network_->pid, SIGKILL);
  ASSERT_TRUE(wait([&] { return network_->configs.size() == 2; }));
  EXPECT_TRUE(network_->configs.back().publications.empty());
}

TEST_F(SandboxNetwork, JoiningAndLeavingWhileItRuns) {
  const auto tell = [this](std::vector<net::PeerNetwork> networks) {
    NetworksRequest request;
    request.spec.policy = "policy none";
    request.spec.networks = std::move(networks);
    const std::string file = std::string(kNetSetFile) + "x";
    EXPECT_TRUE(replace_file(dir_.get(), file, request.encode(), Sync::kNo));
    return call(ShimRequest::kNetworks, ByteWriter().text(file).bytes());
  };
  start();
  EXPECT_EQ(network_->starts, 0);
  // The first one begins the process.
  ASSERT_TRUE(tell(blue()));
  ASSERT_EQ(network_->configs.size(), 1U);
  EXPECT_EQ(network_->configs[0].networks, blue());
  EXPECT_FALSE(has("network.tmp-x"));
  auto two = blue();
  two.push_back({"00000000000b", "red", {}});
  ASSERT_TRUE(tell(two));
  ASSERT_EQ(network_->networks.size(), 1U);
  EXPECT_EQ(network_->networks[0].networks, two);
  // A policy that is set meanwhile leaves them; so does a process that takes the place of another.
  NetSetRequest set;
  set.network.mode = NetworkMode::kOpen;
  set.spec.policy = "policy open";
  EXPECT_TRUE(replace_file(dir_.get(), std::string(kNetSetFile) + "y", set.encode(), Sync::kNo));
  ASSERT_TRUE(call(ShimRequest::kNetSet, ByteWriter().text(std::string(kNetSetFile) + "y").bytes()));
  ::kill(network_->pid, SIGKILL);
  ASSERT_TRUE(wait([&] { return network_->configs.size() == 2; }));
  EXPECT_EQ(network_->configs[1].networks, two);
  EXPECT_EQ(network_->configs[1].policy, "policy open");
  EXPECT_TRUE(wait([&] { return network_->listeners == 2; }));
  // With the last one it ends, unless there is something else to reach.
  ASSERT_TRUE(tell({}));
  ASSERT_EQ(network_->networks.size(), 2U);
  set.network.mode = NetworkMode::kNone;
  EXPECT_TRUE(replace_file(dir_.get(), std::string(kNetSetFile) + "z", set.encode(), Sync::kNo));
  ASSERT_TRUE(call(ShimRequest::kNetSet, ByteWriter().text(std::string(kNetSetFile) + "z").bytes()));
  EXPECT_TRUE(wait([&] { return ShimInfo::decode(as_bytes(*call(ShimRequest::kInfo)))->network_pid == 0; }));
}

TEST_F(SandboxNetwork, ChannelsToMembersAreFetchedForTheProcess) {
  const net::PeerId two{"00000000000a", "000000000002"}, three{"00000000000a", "000000000003"};
  std::vector<std::string> asked;
  connect_peer_ = [&](std::string_view peer, Deadline) -> Result<UniqueFd> {
    asked.emplace_back(peer);
    if (peer != two.encode()) return fail(ErrorCode::kUnavailable, "It does not run");
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
    ::close(ends[1]);
    return UniqueFd(ends[0]);
  };
  spec_.net.networks = blue();
  start();
  network_->want_peer(two);
  network_->want_peer(three);
  ASSERT_TRUE(wait([&] { return network_->grants.size() == 2; }));
  EXPECT_EQ(asked, (std::vector{two.encode(), three.encode()}));
  EXPECT_EQ(network_->grants[0].peer, two);
  EXPECT_TRUE(network_->grants[0].connected);
  EXPECT_EQ(network_->grants[1].peer, three);
  EXPECT_FALSE(network_->grants[1].connected);
  // What it says wrongly is no harm.
  network_->send_all(std::string("\x06\0\0\0\0\0\0\0\xff\xff", 10));
  network_->want_peer({std::string(300, 'x'), "y"});
  network_->want_peer(two);
  ASSERT_TRUE(wait([&] { return network_->grants.size() == 3; }));
  EXPECT_EQ(asked.size(), 3U);
  EXPECT_EQ(network_->starts, 1);
}

}  // namespace
}  // namespace drupe::testing
