// Connections and datagrams between this sandbox's guest and the members of its private networks.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "net/log/egress_log.h"
#include "net/program/peer_channel.h"
#include "net/program/peer_table.h"
#include "net/program/quota.h"
#include "net/stack/icmp.h"
#include "net/world/driver.h"

namespace drupe::net {

/// Between the guest's flows and channels to the network processes of members. A channel's other side is
/// known from the process that made it, and everything that comes through it is of that member: its address
/// is the source, and it reaches nothing but ports of this guest. One thread, that of `loop`.
///
/// A channel is asked for when there is something for it, and kept until its other side ends or leaves the
/// network; each side may use those that the other has made. Refused at once: whoever does not run, whose
/// guest does not listen there, or whose network process ends meanwhile.
class Peers final : public IcmpHandler {
 public:
  /// Asks for a channel; on_channel() answers.
  using Want = std::function<void(const PeerId& peer)>;
  struct Parts {
    EventLoop& loop;
    EgressLog& log;
    const Quota& quota;
    Want want;
  };
  explicit Peers(Parts parts) : parts_(std::move(parts)) {}
  ~Peers() override;
  Peers(const Peers&) = delete;
  Peers& operator=(const Peers&) = delete;
  /// Once, before any flow. `driver` lives longer than any call from it.
  void attach(Driver& driver) {
    driver_ = &driver;
    driver.stack().use_icmp(this);
  }
  /// `call` for the payload of every echo; that of flows is counted with theirs.
  void on_bytes(std::function<void(std::size_t)> call) { on_bytes_ = std::move(call); }

  /// In force when it returns: flows and channels of members that are none any more have ended.
  void set_members(const std::vector<PeerEntry>& entries);
  /// Members connect to it. One that was given before is closed.
  Status set_listener(UniqueFd listener);
  /// An invalid socket: the member cannot be reached now.
  void on_channel(const PeerId& peer, UniqueFd socket);
  /// Whether a member has the address; all other functions that take a key want one.
  [[nodiscard]] bool owns(const PacketAddress& address) const;

  // Of the gates. The functions for flows of another's give false, or do nothing.
  void connect(FlowId flow, const FlowKey& key);
  bool on_gone(FlowId flow);
  bool on_guest_refused(FlowId flow, CloseReason reason, UniqueFd& socket);
  void on_guest_accepted(FlowId flow);
  void end_peer(FlowId flow, int socket);
  bool peer_ended_well(FlowId flow);
  UdpVerdict on_udp_flow(FlowId flow, const FlowKey& key);
  bool on_udp(FlowId flow, const FlowKey& key, ByteView payload);
  bool on_udp_gone(FlowId flow);
  bool on_echo(const PacketAddress& remote, bool reply, ByteView body) override;
  void on_port_refused(const FlowKey& key) override;

  [[nodiscard]] std::uint64_t admitted() const { return admitted_; }
  [[nodiscard]] std::uint64_t refused() const { return refused_; }
  [[nodiscard]] std::size_t channels() const { return channels_.size(); }

  static constexpr std::size_t kMaxOpen = 384;  ///< Connections with one member, both ways.
  static constexpr std::size_t kMaxIncoming =
      512;  ///< From all members: a third is left for the guest's own.
  /// Flows that one member has begun; the one that was idle longest makes room.
  static constexpr std::size_t kMaxUdp = 128;
  static constexpr std::size_t kMaxUdpIncoming = 256;  ///< The same of all members.
  static constexpr std::size_t kMaxChannels = 4;       ///< With one member; more are closed.
  static constexpr std::size_t kMaxUnknown = 32;       ///< Of which nothing has come yet.
  static constexpr std::size_t kMaxWaiting = 16;       ///< Datagrams that wait for one member's channel.
  /// After a refusal the next ones are not asked for: a guest cannot keep others busy with it.
  static constexpr std::chrono::milliseconds kAskAgain{100};
  /// For the other guest's answer, which itself gives up before.
  static constexpr std::chrono::seconds kPatience{40};

 private:
  struct Channel;
  struct Member {
    PeerEntry entry;
    PacketAddress address;
    bool wanted = false;
    Deadline ask_from;  // after a refusal
    std::vector<Channel*> channels;
    std::vector<FlowId> waiting;                            // connections
    std::vector<std::pair<FlowId, PeerMessage>> datagrams;  // echo requests, too: of no flow
    std::size_t open = 0, udp = 0;
  };
  struct Channel {
    std::unique_ptr<PeerChannel> link;
    Member* member = nullptr;                                // none until its first packet
    std::unordered_map<std::uint32_t, FlowId> ours, theirs;  // connections, by who has opened them
    std::uint32_t next_number = 1;
  };
  /// A TCP connection.
  struct Flow {
    Member* member = nullptr;
    Channel* channel = nullptr;  // none: it waits for one, or has lost it
    std::uint32_t number = 0;
    bool ours = false;
    bool accepted = false;  // theirs: by this guest
    bool well = false;      // the other side's direction ends in order
    UniqueFd socket;        // until the other side has answered
    EventLoop::TimerId timer = 0;
  };

  [[nodiscard]] Member* member_at(const PacketAddress& address) const;
  [[nodiscard]] Member* member_of(const PeerId& peer) const;
  [[nodiscard]] static Channel* usable(const Member& member);
  [[nodiscard]] Flow* find(FlowId flow);
  void note(const Member& member, const char* detail, std::uint16_t port, bool allowed,
            const std::string& why);
  void on_listener();
  /// False: it is no channel.
  bool add_channel(UniqueFd socket, Member* member);
  void join(Channel& channel, Member& member);
  bool on_packet(Channel& channel, ByteView bytes, UniqueFd passed);
  bool on_message(Channel& channel, PeerMessage message, UniqueFd passed);
  /// `all`: connections that stand end with it.
  void drop_channel(Channel& channel, bool all);
  void drop_member(Member& member);
  void want(Member& member);
  void open(FlowId id, Flow& flow, Channel& channel);
  void on_open(Channel& channel, const PeerMessage& message, UniqueFd stream);
  void on_answer(Channel& channel, const PeerMessage& message);
  void on_datagram(Member& member, const PeerMessage& message);
  void on_unheard(const Member& member, const PeerMessage& message);
  void on_echo_of(const Member& member, const PeerMessage& message);
  void count(std::size_t bytes) const {
    if (on_bytes_) on_bytes_(bytes);
  }
  void make_room_for_flow(const Member& member);
  /// Nobody answers for it, as has just been found out.
  [[nodiscard]] static bool is_out(const Member& member);
  void decide(FlowId id, ConnectVerdict verdict);
  void give_up(FlowId id);
  Flow forget(FlowId id);
  static void cancel(const Flow& gone);
  void end(FlowId id);

  Parts parts_;
  Driver* driver_ = nullptr;
  UniqueFd listener_;
  EventLoop::TimerId accept_timer_ = 0;
  std::unordered_map<IpAddress, std::unique_ptr<Member>, IpAddressHash> members_;
  std::map<Channel*, std::unique_ptr<Channel>> channels_;
  std::unordered_map<std::uint64_t, Flow> flows_;  // by flow
  struct UdpFlow {
    Member* member = nullptr;
    bool theirs = false;
    std::uint64_t used = 0;  // by use_, at its last datagram
  };
  std::unordered_map<std::uint64_t, UdpFlow> udp_;  // by flow
  std::size_t incoming_ = 0, udp_incoming_ = 0, unknown_ = 0;
  std::uint64_t use_ = 0;
  std::uint64_t admitted_ = 0, refused_ = 0;
  std::function<void(std::size_t)> on_bytes_;
};

}  // namespace drupe::net
