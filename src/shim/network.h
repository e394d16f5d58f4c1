// A sandbox's network process: started confined, configured, asked, started again when it has ended.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/event_loop.h"
#include "hypervisor/hypervisor.h"
#include "protocol/net_control.h"

namespace drupe {

/// Owns the process, its control socket and one end of the guest's network card, so that a process may end
/// and another one take its place. Used by the loop's thread; destroying it kills and reaps the process.
class Network {
 public:
  /// Starts the program; see Hypervisor::start_helper().
  using Start = std::function<Result<StartedHelper>(UniqueFd log, UniqueFd frames, Deadline deadline)>;
  using Reply = std::function<void(Result<std::string>)>;
  /// What the process says unasked; hostile.
  using OnEvent = std::function<void(ByteView payload)>;

  /// `frames`: the host's end of the card's socket.
  Network(EventLoop& loop, Start start, UniqueFd frames, net::NetConfig config);
  ~Network();
  Network(const Network&) = delete;
  Network& operator=(const Network&) = delete;

  /// Starts the process and sends it its configuration. The loop may run nested.
  Status begin(Deadline deadline);
  /// Waits until the policy is in force: the guest's link may come up then.
  Status await_ready(Deadline deadline);
  /// Called once, from the loop, when a process has ended that had been begun.
  void on_end(std::function<void(const std::string& reason)> callback) { on_end_ = std::move(callback); }
  /// May come as soon as it was begun.
  void on_event(OnEvent callback) { on_event_ = std::move(callback); }
  /// Every process from now on gets a copy of it (kPeerListener). Borrowed.
  void use_peer_listener(int listener) { peer_listener_ = listener; }
  [[nodiscard]] bool running() const { return child_.pid > 0; }
  [[nodiscard]] int pid() const { return running() ? child_.pid : 0; }
  /// What of the process's confinement this host did not allow.
  [[nodiscard]] const std::vector<std::string>& confinement_missing() const { return missing_; }

  /// Of the quota, by all processes together.
  [[nodiscard]] std::uint64_t used_bytes() const;
  /// What the next process is begun with.
  net::NetConfig& config() { return config_; }
  /// `body` and the answer are not looked at. `pass` goes with it, if it is valid.
  void request(net::NetRequest kind, std::string_view body, Reply done, UniqueFd pass = {});
  /// The loop runs nested.
  Result<std::string> call(net::NetRequest kind, std::string_view body, Deadline deadline);

 private:
  Status accept(const Result<std::string>& answer);
  void on_control(std::uint32_t events);
  void receive();
  void flush();
  /// The process is of no more use.
  void lose(const std::string& reason);
  void end_process();

  EventLoop& loop_;
  Start start_;
  UniqueFd frames_;
  UniqueFd ledger_;  // protocol/net_ledger.h
  net::NetConfig config_;
  ChildProcess child_;
  UniqueFd control_;
  std::vector<std::string> missing_;
  std::string in_, out_;
  struct Passed {
    std::size_t at = 0;  // in out_: goes with the byte there
    UniqueFd fd;
  };
  std::deque<Passed> passed_;
  int peer_listener_ = -1;
  OnEvent on_event_;
  std::uint32_t next_request_ = 1;
  std::map<std::uint32_t, Reply> requests_;
  std::optional<Status> ready_;
  std::function<void(const std::string&)> on_end_;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

/// What every guest's network looks like from inside. The addresses mean nothing outside of it: a forked
/// guest keeps those that its programs know. Of a range for benchmarks (RFC 2544), which no network that a
/// guest could want to reach uses; the other of a range for local use (RFC 4193).
namespace inner {
/// The guest's link ends in the network process, which speaks to the world over sockets of the host: no
/// packet of this size ever leaves. One frame of 64 KiB costs guest and process as much as one of 1,500 bytes
/// (bench row `network`).
inline constexpr std::uint32_t kMtu = 65520;
inline constexpr const char* kGuestV4 = "198.19.254.2";
inline constexpr const char* kGatewayV4 = "198.19.254.1";
inline constexpr std::uint8_t kPrefixV4 = 30;
inline constexpr const char* kGuestV6 = "fd64:7275:7065::2";
inline constexpr const char* kGatewayV6 = "fd64:7275:7065::1";
inline constexpr std::uint8_t kPrefixV6 = 64;
}  // namespace inner

}  // namespace drupe
