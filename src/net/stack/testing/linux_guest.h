// Linux's own TCP/IP as the guest: a tap device in a user and network namespace, with a bad link to the
// stack.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "net/stack/stack.h"

namespace drupe::net::testing {

/// How bad the link is, in each direction; per mille.
struct BadLink {
  unsigned drop = 0, duplicate = 0, delay = 0;
};

/// Moves this process, which must have one thread, into namespaces of its own and makes a tap device there.
/// The kernel's side of the device has the addresses of kGuest4 and kGuest6. Returns the device, or why this
/// machine does not allow it.
Result<UniqueFd> enter_guest_namespace();
/// Precondition: enter_guest_namespace() worked.
Status set_guest_mtu(std::size_t mtu);

/// Runs a Stack on a thread over the tap device until it is destroyed. Everything of the stack happens on
/// that thread.
class LinuxGuest {
 public:
  LinuxGuest(int tap, std::size_t mtu, BadLink link, TcpHandler& tcp, UdpHandler& udp);
  ~LinuxGuest();
  /// Runs `call` with the stack on its thread and waits for it.
  void run(const std::function<void(Stack&)>& call);
  [[nodiscard]] Stack& stack() { return *stack_; }

 private:
  class TapSink;
  void loop();
  void serve_calls();
  void read_tap();

  int tap_;
  UniqueFd wake_;
  SteadyTime time_;
  std::unique_ptr<TapSink> sink_;
  std::unique_ptr<Stack> stack_;
  std::vector<std::uint8_t> buffer_;
  std::mutex mutex_;
  std::vector<std::function<void()>> calls_;
  std::atomic<bool> stopping_ = false;
  std::thread thread_;
};

}  // namespace drupe::net::testing
