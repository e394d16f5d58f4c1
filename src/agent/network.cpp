#include "agent/network.h"

#include <array>
#include <cerrno>
#include <cstring>
#include <string_view>

#include <fcntl.h>
#include <linux/if_addr.h>
#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <arpa/inet.h>
#include <net/if.h>
#include <net/if_arp.h>

#include "agent/names.h"

namespace drupe::agent {
namespace {

constexpr const char* kInterface = "eth0";
constexpr int kLinkWaitMs = 5000;

/// An address in network byte order.
struct Address {
  int family = AF_INET;
  std::array<char, 16> raw{};
  [[nodiscard]] std::string_view bytes() const {
    return {raw.data(), family == AF_INET ? std::size_t{4} : std::size_t{16}};
  }
};

Result<Address> parse(int family, const std::string& text) {
  Address address{family, {}};
  if (::inet_pton(family, text.c_str(), address.raw.data()) != 1)
    return fail(ErrorCode::kInvalidArgument, "The host gave an address that is none: " + text);
  return address;
}

/// One rtnetlink request (rtnetlink(7)); every part is padded to four bytes.
class RouteMessage {
 public:
  template <class Body>
  RouteMessage(std::uint16_t type, std::uint16_t flags, const Body& body) {
    nlmsghdr head{};
    head.nlmsg_type = type;
    head.nlmsg_flags = static_cast<std::uint16_t>(flags | NLM_F_REQUEST | NLM_F_ACK);
    append(&head, sizeof head);
    append(&body, sizeof body);
  }
  RouteMessage& attribute(std::uint16_t type, std::string_view value) {
    const rtattr head{static_cast<std::uint16_t>(RTA_LENGTH(value.size())), type};
    append(&head, sizeof head);
    append(value.data(), value.size());
    return *this;
  }
  RouteMessage& attribute(std::uint16_t type, std::uint32_t value) {
    return attribute(type, std::string_view(reinterpret_cast<const char*>(&value), sizeof value));
  }
  [[nodiscard]] std::string take() {
    const auto size = static_cast<std::uint32_t>(bytes_.size());
    std::memcpy(bytes_.data(), &size, sizeof size);  // nlmsg_len is the first field
    return std::move(bytes_);
  }

 private:
  void append(const void* from, std::size_t size) {
    bytes_.append(static_cast<const char*>(from), size);
    bytes_.resize((bytes_.size() + 3) / 4 * 4, '\0');
  }
  std::string bytes_;
};

class Card {
 public:
  static Result<Card> open() {
    Card card;
    card.control_ = UniqueFd(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
    card.route_ = UniqueFd(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE));
    if (!card.control_.valid() || !card.route_.valid()) return fail_sys("Opening a socket failed", errno);
    card.index_ = ::if_nametoindex(kInterface);
    if (card.index_ == 0) return fail_sys("The machine has no network card", errno);
    return card;
  }

  Status set_mac(const std::string& mac) const {
    ifreq request = named();
    if (::ioctl(control_.get(), SIOCGIFHWADDR, &request) != 0)
      return fail_sys("Reading the network card's address failed", errno);
    if (std::memcmp(request.ifr_hwaddr.sa_data, mac.data(), mac.size()) == 0) return {};
    request.ifr_hwaddr.sa_family = ARPHRD_ETHER;
    std::memcpy(request.ifr_hwaddr.sa_data, mac.data(), mac.size());
    if (::ioctl(control_.get(), SIOCSIFHWADDR, &request) != 0)
      return fail_sys("Setting the network card's address failed", errno);
    return {};
  }

  Status set_mtu(std::uint32_t mtu) const {
    ifreq request = named();
    request.ifr_mtu = static_cast<int>(mtu);
    if (::ioctl(control_.get(), SIOCSIFMTU, &request) != 0)
      return fail_sys("Setting the network card's MTU failed", errno);
    return {};
  }

  Status set_up(bool up) const {
    ifreq request = named();
    if (::ioctl(control_.get(), SIOCGIFFLAGS, &request) != 0)
      return fail_sys("Reading the network card's state failed", errno);
    request.ifr_flags = static_cast<short>(up ? request.ifr_flags | IFF_UP : request.ifr_flags & ~IFF_UP);
    if (::ioctl(control_.get(), SIOCSIFFLAGS, &request) != 0)
      return fail_sys("Starting or stopping the network card failed", errno);
    return {};
  }

  /// Until packets that are sent are not lost for want of a link.
  Status wait_for_link() const {
    const UniqueFd news(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC | SOCK_NONBLOCK, NETLINK_ROUTE));
    sockaddr_nl address{};
    address.nl_family = AF_NETLINK;
    address.nl_groups = RTMGRP_LINK;
    if (::bind(news.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
      return fail_sys("Listening for the network card's link failed", errno);
    while (true) {
      ifreq request = named();
      if (::ioctl(control_.get(), SIOCGIFFLAGS, &request) != 0)
        return fail_sys("Reading the network card's state failed", errno);
      if ((request.ifr_flags & IFF_RUNNING) != 0) return {};
      pollfd waiting{news.get(), POLLIN, 0};
      if (::poll(&waiting, 1, kLinkWaitMs) <= 0)
        return fail(ErrorCode::kTimeout, "The network card's link did not come up");
      char text[4096];
      while (::recv(news.get(), text, sizeof text, 0) > 0) {
      }
    }
  }

  Status add_address(const Address& address, std::uint8_t prefix) const {
    ifaddrmsg body{};
    body.ifa_family = static_cast<unsigned char>(address.family);
    body.ifa_prefixlen = prefix;
    // The host knows that nobody else has the address: it can be used at once (RFC 4862, 5.4: DAD).
    body.ifa_flags = address.family == AF_INET6 ? IFA_F_NODAD : 0;
    body.ifa_index = index_;
    RouteMessage message(RTM_NEWADDR, NLM_F_CREATE | NLM_F_REPLACE, body);
    message.attribute(IFA_LOCAL, address.bytes()).attribute(IFA_ADDRESS, address.bytes());
    return send(message.take(), "Giving the network card its address failed");
  }

  Status add_default_route(const Address& gateway) const {
    rtmsg body{};
    body.rtm_family = static_cast<unsigned char>(gateway.family);
    body.rtm_table = RT_TABLE_MAIN;
    body.rtm_protocol = RTPROT_STATIC;
    body.rtm_scope = RT_SCOPE_UNIVERSE;
    body.rtm_type = RTN_UNICAST;
    RouteMessage message(RTM_NEWROUTE, NLM_F_CREATE | NLM_F_REPLACE, body);
    message.attribute(RTA_GATEWAY, gateway.bytes()).attribute(RTA_OIF, index_);
    return send(message.take(), "Setting the default route failed");
  }

 private:
  [[nodiscard]] static ifreq named() {
    ifreq request{};
    std::memcpy(request.ifr_name, kInterface, std::strlen(kInterface));
    return request;
  }

  Status send(const std::string& message, const char* what) const {
    if (::send(route_.get(), message.data(), message.size(), 0) < 0) return fail_sys(what, errno);
    struct {
      nlmsghdr head;
      nlmsgerr error;
      char rest[1024];  // The request comes back with an error.
    } answer{};
    const ssize_t got = ::recv(route_.get(), &answer, sizeof answer, 0);
    if (got < static_cast<ssize_t>(sizeof answer.head + sizeof answer.error.error) ||
        answer.head.nlmsg_type != NLMSG_ERROR)
      return fail(ErrorCode::kHost, std::string(what) + ": the kernel's answer is not understood");
    if (answer.error.error != 0) return fail_sys(what, -answer.error.error);
    return {};
  }

  UniqueFd control_, route_;
  std::uint32_t index_ = 0;
};

/// Best effort: a kernel without IPv6 has none of the files, and needs none.
void set_ipv6(bool on) {
  const std::string conf = std::string("/proc/sys/net/ipv6/conf/") + kInterface + "/";
  const auto set = [&conf](const char* name, const char* value) {
    [[maybe_unused]] const auto done = put(AT_FDCWD, conf + name, value);
  };
  if (!on) return set("disable_ipv6", "1");
  // The host alone configures; with a link-local address the kernel would join groups nobody listens to.
  for (const char* name : {"accept_ra", "accept_dad", "autoconf", "router_solicitations"}) set(name, "0");
  set("addr_gen_mode", "1");
  set("disable_ipv6", "0");
}

Status write_resolv_conf(const Work& work, const std::string& text) {
  ::umask(022);
  DRUPE_ASSIGN(const UniqueFd etc, open_etc(work.root(), O_RDONLY | O_DIRECTORY));
  return replace_file(etc.get(), "resolv.conf", text, Sync::kNo, 0644);
}

}  // namespace

Status set_network(const Work& work, const SetNetworkRequest& request) {
  DRUPE_ASSIGN(const Card card, Card::open());
  if (!request.up) return card.set_up(false);
  if (!request.mac.empty()) DRUPE_TRY(card.set_mac(request.mac));
  DRUPE_TRY(card.set_mtu(request.mtu));
  const bool v6 = !request.v6.empty();
  set_ipv6(v6);
  DRUPE_TRY(card.set_up(true));
  DRUPE_TRY(card.wait_for_link());
  DRUPE_ASSIGN(const Address own, parse(AF_INET, request.v4));
  DRUPE_ASSIGN(const Address gateway, parse(AF_INET, request.gateway_v4));
  DRUPE_TRY(card.add_address(own, request.v4_prefix));
  DRUPE_TRY(card.add_default_route(gateway));
  if (v6) {
    DRUPE_ASSIGN(const Address own_v6, parse(AF_INET6, request.v6));
    DRUPE_ASSIGN(const Address gateway_v6, parse(AF_INET6, request.gateway_v6));
    DRUPE_TRY(card.add_address(own_v6, request.v6_prefix));
    DRUPE_TRY(card.add_default_route(gateway_v6));
  }
  if (request.resolv_conf.empty()) return {};
  return write_resolv_conf(work, request.resolv_conf);
}

}  // namespace drupe::agent
