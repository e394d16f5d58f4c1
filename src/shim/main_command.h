// The sandbox's main command: one stream to the guest, its log, and any number of attached clients.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "protocol/credit.h"
#include "shim/client_hub.h"
#include "shim/guest_link.h"
#include "shim/log_file.h"

namespace drupe {

/// Output goes to the log and to every attached client; the guest may send as much as the slowest of them
/// takes, and without any as much as the log takes. Stdin comes from the first client that attached with it.
/// Clients may attach before the command starts (and then get everything) and after it has ended (and then
/// get its facts).
class MainCommand final : public GuestStream {
 public:
  struct Callbacks {
    /// Somebody attached while the command had not started.
    std::function<void()> on_wanted;
    /// Once, before the attached clients are told.
    std::function<void(const ExitFacts&)> on_ended;
  };
  MainCommand(ExecOptions options, std::optional<LogWriter> log, Callbacks callbacks);
  ~MainCommand() override;

  /// Runs the command. kInvalidState when it has been started before.
  Status start(GuestLink& link);
  /// Finds it again in a restored guest.
  Status reattach(GuestLink& link);
  /// The guest is gone: attached clients are reset with `error`.
  void guest_gone(const Error& error);

  Result<std::unique_ptr<ClientSideStream>> attach(const ClientStreamRef& client, bool wants_stdin);

  [[nodiscard]] bool waiting() const { return state_ == State::kWaiting; }
  [[nodiscard]] bool running() const { return state_ == State::kRunning; }
  [[nodiscard]] std::uint64_t log_bytes_lost() const { return log_ ? log_->lost() : 0; }
  void on_guest_frame(const Frame& frame) override;

 private:
  class Attachment;
  enum class State : std::uint8_t { kWaiting, kRunning, kEnded };

  Status open(GuestLink& link, const OpenRequest& request);
  void on_output(const Frame& frame);
  void on_exit(const ExitFacts& facts);
  /// Lets the guest send what every attachment takes.
  void grant(Channel channel);
  Status take_stdin(std::string_view bytes);
  void flush_stdin();
  void detach(Attachment* attachment);
  template <class F>
  void for_each_attachment(const F& call);

  ExecOptions options_;
  std::optional<LogWriter> log_;
  Callbacks callbacks_;
  GuestLink* link_ = nullptr;
  std::uint32_t id_ = 0;
  State state_ = State::kWaiting;
  std::optional<ExitFacts> facts_;
  std::optional<std::string> opened_;     ///< Payload of kOpened, for those who attach later.
  std::vector<Attachment*> attachments_;  ///< Owned by the hub; each leaves the list before it goes.
  Attachment* stdin_owner_ = nullptr;
  std::string pending_stdin_;  ///< Taken from its owner, not yet granted by the guest; one window at most.
  bool eof_pending_ = false;
  std::array<std::uint64_t, kChannels> received_{};  ///< Output bytes since the stream was opened.
  std::array<std::uint64_t, kChannels> allowed_{};   ///< Up to here the guest may send.
  std::array<bool, kChannels> eof_{};
};

}  // namespace drupe
