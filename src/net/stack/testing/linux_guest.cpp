#include "net/stack/testing/linux_guest.h"

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <random>

#include <fcntl.h>
#include <linux/if_tun.h>
#include <poll.h>
#include <sched.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/socket.h>

#include <arpa/inet.h>
#include <net/if.h>
#include <net/route.h>

#include "base/files.h"
#include "net/stack/testing/fake_guest.h"

namespace drupe::net::testing {
namespace {

constexpr const char* kDevice = "guest0";

// From linux/ipv6.h and linux/ipv6_route.h, which do not go together with the headers of the C library.
struct In6Ifreq {
  in6_addr address;
  std::uint32_t prefix;
  int index;
};
struct In6Rtmsg {
  in6_addr destination, source, gateway;
  std::uint32_t type;
  std::uint16_t destination_length, source_length;
  std::uint32_t metric;
  unsigned long info;
  std::uint32_t flags;
  int index;
};

ifreq request() {
  ifreq value{};
  std::strncpy(value.ifr_name, kDevice, IFNAMSIZ - 1);
  return value;
}

sockaddr_in address_of(const PacketAddress& address) {
  sockaddr_in value{};
  value.sin_family = AF_INET;
  std::memcpy(&value.sin_addr, address.bytes.data(), 4);
  return value;
}

void write_text(const char* path, const std::string& text) {
  const UniqueFd file(::open(path, O_WRONLY | O_CLOEXEC));
  if (file.valid()) (void)!::write(file.get(), text.data(), text.size());
}

Status control(int socket, unsigned long what, void* argument, const char* sentence) {
  if (::ioctl(socket, what, argument) != 0) return fail_sys(sentence, errno);
  return {};
}

Status configure_v4(int socket) {
  ifreq value = request();
  value.ifr_hwaddr.sa_family = 1;  // ARPHRD_ETHER
  std::memcpy(value.ifr_hwaddr.sa_data, kGuestMac.bytes.data(), 6);
  DRUPE_TRY(control(socket, SIOCSIFHWADDR, &value, "Setting the MAC address failed"));
  const sockaddr_in address = address_of(kGuest4), mask = address_of(PacketAddress::v4(255, 255, 255, 0));
  value = request();
  std::memcpy(&value.ifr_addr, &address, sizeof(address));
  DRUPE_TRY(control(socket, SIOCSIFADDR, &value, "Setting the address failed"));
  std::memcpy(&value.ifr_netmask, &mask, sizeof(mask));
  DRUPE_TRY(control(socket, SIOCSIFNETMASK, &value, "Setting the mask failed"));
  value = request();
  value.ifr_flags = IFF_UP | IFF_RUNNING;
  DRUPE_TRY(control(socket, SIOCSIFFLAGS, &value, "Bringing the device up failed"));
  rtentry route{};
  const sockaddr_in gateway = address_of(kGateway4), any = address_of({});
  std::memcpy(&route.rt_gateway, &gateway, sizeof(gateway));
  std::memcpy(&route.rt_dst, &any, sizeof(any));
  std::memcpy(&route.rt_genmask, &any, sizeof(any));
  route.rt_flags = RTF_UP | RTF_GATEWAY;
  return control(socket, SIOCADDRT, &route, "Setting the route failed");
}

Status configure_v6(int index) {
  const UniqueFd socket(::socket(AF_INET6, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  if (!socket.valid()) return fail_sys("This machine has no IPv6", errno);
  In6Ifreq value{};
  std::memcpy(&value.address, kGuest6.bytes.data(), 16);
  value.prefix = 64;
  value.index = index;
  DRUPE_TRY(control(socket.get(), SIOCSIFADDR, &value, "Setting the IPv6 address failed"));
  In6Rtmsg route{};
  std::memcpy(&route.gateway, kGateway6.bytes.data(), 16);
  route.metric = 1;
  route.flags = RTF_UP | RTF_GATEWAY;
  route.index = index;
  return control(socket.get(), SIOCADDRT, &route, "Setting the IPv6 route failed");
}

}  // namespace

Result<UniqueFd> enter_guest_namespace() {
  const auto uid = ::getuid(), gid = ::getgid();
  if (::unshare(CLONE_NEWUSER | CLONE_NEWNET) != 0) return fail_sys("No user and network namespaces", errno);
  write_text("/proc/self/setgroups", "deny");
  write_text("/proc/self/uid_map", "0 " + std::to_string(uid) + " 1");
  write_text("/proc/self/gid_map", "0 " + std::to_string(gid) + " 1");
  UniqueFd tap(::open("/dev/net/tun", O_RDWR | O_CLOEXEC | O_NONBLOCK));
  if (!tap.valid()) return fail_sys("No /dev/net/tun", errno);
  ifreq value = request();
  value.ifr_flags = IFF_TAP | IFF_NO_PI;
  DRUPE_TRY(control(tap.get(), TUNSETIFF, &value, "No tap device"));
  // No wait for duplicate addresses; where /proc/sys is read-only the first IPv6 connection waits.
  write_text("/proc/sys/net/ipv6/conf/guest0/accept_dad", "0");
  write_text("/proc/sys/net/ipv6/conf/guest0/accept_ra", "0");
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  DRUPE_TRY(configure_v4(socket.get()));
  value = request();
  DRUPE_TRY(control(socket.get(), SIOCGIFINDEX, &value, "Finding the device failed"));
  DRUPE_TRY(configure_v6(value.ifr_ifindex));
  return tap;
}

Status set_guest_mtu(std::size_t mtu) {
  const UniqueFd socket(::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  ifreq value = request();
  value.ifr_mtu = static_cast<int>(mtu);
  return control(socket.get(), SIOCSIFMTU, &value, "Setting the MTU failed");
}

// Loses, doubles and delays frames of both directions.
class LinuxGuest::TapSink final : public FrameSink {
 public:
  TapSink(int tap, BadLink link) : tap_(tap), link_(link) {}

  std::size_t send(std::span<const OutFrame> frames) override {
    for (const auto& frame : frames) {
      std::vector<std::uint8_t> bytes;
      for (const auto piece : frame.pieces) bytes.insert(bytes.end(), piece.begin(), piece.end());
      pass(std::move(bytes), to_guest_,
           [this](ByteView whole) { (void)!::write(tap_, whole.data(), whole.size()); });
    }
    return frames.size();
  }
  void from_guest(ByteView frame, const std::function<void(ByteView)>& deliver) {
    pass({frame.begin(), frame.end()}, from_guest_, deliver);
  }
  [[nodiscard]] bool holds() const { return !to_guest_.empty() || !from_guest_.empty(); }
  void release(const std::function<void(ByteView)>& deliver) {
    for (const auto& frame : std::exchange(to_guest_, {})) (void)!::write(tap_, frame.data(), frame.size());
    for (const auto& frame : std::exchange(from_guest_, {})) deliver(frame);
  }

 private:
  using Held = std::vector<std::vector<std::uint8_t>>;
  bool happens(unsigned per_mille) { return random_() % 1000 < per_mille; }
  void pass(std::vector<std::uint8_t> frame, Held& held, const std::function<void(ByteView)>& deliver) {
    if (happens(link_.drop)) return;
    if (happens(link_.duplicate)) deliver(frame);
    if (happens(link_.delay)) {
      held.push_back(std::move(frame));
      return;
    }
    deliver(frame);
    if (!held.empty() && happens(300)) {
      const auto late = std::move(held[random_() % held.size()]);
      std::erase_if(held, [](const auto& one) { return one.empty(); });
      deliver(late);
    }
  }

  int tap_;
  BadLink link_;
  std::minstd_rand random_{12345};
  Held to_guest_, from_guest_;
};

LinuxGuest::LinuxGuest(int tap, std::size_t mtu, BadLink link, TcpHandler& tcp, UdpHandler& udp)
    : tap_(tap),
      wake_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      sink_(std::make_unique<TapSink>(tap, link)) {
  StackConfig config = test_config();
  config.mtu = mtu;
  stack_ = std::make_unique<Stack>(*validated(config), *sink_, time_, tcp, udp);
  buffer_.resize(70000);
  thread_ = std::thread([this] { loop(); });
}

LinuxGuest::~LinuxGuest() {
  stopping_ = true;
  ::eventfd_write(wake_.get(), 1);
  thread_.join();
}

void LinuxGuest::run(const std::function<void(Stack&)>& call) {
  std::mutex done_mutex;
  std::condition_variable changed;
  bool done = false;
  {
    const std::lock_guard lock(mutex_);
    calls_.push_back([&] {
      call(*stack_);
      const std::lock_guard done_lock(done_mutex);
      done = true;
      changed.notify_one();
    });
  }
  ::eventfd_write(wake_.get(), 1);
  std::unique_lock lock(done_mutex);
  changed.wait(lock, [&] { return done; });
}

void LinuxGuest::serve_calls() {
  eventfd_t ignored = 0;
  ::eventfd_read(wake_.get(), &ignored);
  std::vector<std::function<void()>> calls;
  {
    const std::lock_guard lock(mutex_);
    calls.swap(calls_);
  }
  for (const auto& call : calls) call();
}

void LinuxGuest::read_tap() {
  for (int i = 0; i < 32; ++i) {
    const ssize_t size = ::read(tap_, buffer_.data(), buffer_.size());
    if (size <= 0) return;
    sink_->from_guest(ByteView(buffer_).first(static_cast<std::size_t>(size)),
                      [this](ByteView frame) { stack_->input(frame); });
  }
}

void LinuxGuest::loop() {
  while (!stopping_) {
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(stack_->next_deadline() - time_.now()).count();
    int timeout = stack_->next_deadline() == TimePoint::max()
                      ? 1000
                      : static_cast<int>(std::clamp<std::int64_t>(left, 0, 1000));
    if (sink_->holds()) timeout = std::min(timeout, 3);
    pollfd fds[2] = {{tap_, POLLIN, 0}, {wake_.get(), POLLIN, 0}};
    if (::poll(fds, 2, timeout) == 0) sink_->release([this](ByteView frame) { stack_->input(frame); });
    if ((fds[0].revents & POLLIN) != 0) read_tap();
    if ((fds[1].revents & POLLIN) != 0) serve_calls();
    if (stack_->next_deadline() <= time_.now()) stack_->advance();
    stack_->flush();
  }
}

}  // namespace drupe::net::testing
