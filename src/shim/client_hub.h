// The sandbox's local clients: the listening socket, their connections, and the table of their streams. What
// a client sends is hostile: a client that breaks the protocol or does not read is dropped, and nothing else
// happens.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/event_loop.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "protocol/messages.h"
#include "protocol/port.h"

namespace drupe {

class ClientHub;
using ClientId = std::uint64_t;

/// Where a stream's frames to its client go. A value: when the client has gone, what is sent goes nowhere.
class ClientStreamRef {
 public:
  ClientStreamRef() = default;
  ClientStreamRef(ClientHub* hub, ClientId client, std::uint32_t stream)
      : hub_(hub), client_(client), stream_(stream) {}
  /// kOpened, kData, kEof, kCredit.
  void send(FrameType type, Channel channel, std::string_view payload) const;
  /// The last frame; the hub forgets (and destroys, later) the stream's ClientSideStream.
  void exit(std::string_view facts) const;
  void reset(const Error& error) const;

 private:
  ClientHub* hub_ = nullptr;
  ClientId client_ = 0;
  std::uint32_t stream_ = 0;
};

/// What a client's stream is connected to. Owned by the hub.
class ClientSideStream {
 public:
  virtual ~ClientSideStream() = default;
  /// kData on kStdin, kEof, kCredit, kSignal or kResize. An error drops the client.
  virtual Status on_client_frame(const Frame& frame) = 0;
  /// The client reset the stream or went away; `reason` is for the guest. No frame follows.
  virtual void on_client_gone(std::string_view reason) = 0;
};

/// Answers one request. May be called at any time, once; nothing happens when the client has gone.
using ReplyFn = std::function<void(Result<std::string>)>;

class ClientHub {
 public:
  struct Delegate {
    std::function<Result<std::unique_ptr<ClientSideStream>>(const ClientStreamRef&, OpenRequest)> open_stream;
    std::function<void(ClientId, std::uint16_t kind, ByteView body, ReplyFn)> on_request;
    /// A client came, went, opened or ended a stream.
    std::function<void()> on_activity;
    std::function<void(ClientId, int peer_pid)> on_connected, on_disconnected;
  };
  static constexpr std::size_t kMaxClients = 64;
  static constexpr std::size_t kMaxPendingRequests = 64;  ///< Of one client.
  static constexpr std::size_t kMaxStreamsPerClient = 256;
  static constexpr std::size_t kMaxOpening = 4;  ///< Opens of one client that have not arrived completely.

  ClientHub(EventLoop& loop, Delegate delegate) : loop_(loop), delegate_(std::move(delegate)) {}
  ~ClientHub();

  /// Binds `name` (0600) in the current directory and listens.
  Status listen(const std::string& name);
  /// Takes a connected client, checking that its user is ours.
  Status adopt(UniqueFd connection);
  void stop_listening();

  /// While paused no client is read and none accepted.
  void pause_reading(bool paused);
  /// Resets every stream, without telling the streams' other ends (they are gone).
  void reset_all(const Error& error);
  /// Waits until every client has taken what was sent to it.
  void drain(std::chrono::milliseconds at_most);

  [[nodiscard]] std::size_t clients() const { return clients_.size(); }
  [[nodiscard]] std::size_t streams() const;

 private:
  friend class ClientStreamRef;
  struct Client {
    ClientId id = 0;
    int pid = 0;
    std::unique_ptr<Port> port;
    std::map<std::uint32_t, OpenAssembler> opening;
    std::unordered_map<std::uint32_t, std::unique_ptr<ClientSideStream>> streams;
    std::size_t pending = 0;
  };

  void accept_all();
  Status on_frame(ClientId id, const Frame& frame);
  Status on_request(Client& client, const Frame& frame);
  Status on_open(Client& client, const Frame& frame);
  Status finish_open(Client& client, std::uint32_t stream);
  Status on_stream_frame(Client& client, const Frame& frame);
  void reply(ClientId id, std::uint32_t request, const Result<std::string>& result);
  void send(ClientId id, FrameType type, Channel channel, std::uint32_t stream, std::string_view payload);
  void end_stream(ClientId id, std::uint32_t stream, FrameType type, std::string_view payload);
  void remove(ClientId id);
  void bury(std::unique_ptr<ClientSideStream> stream);
  Client* find(ClientId id);

  EventLoop& loop_;
  Delegate delegate_;
  UniqueFd listener_;
  std::map<ClientId, std::unique_ptr<Client>> clients_;
  std::vector<std::unique_ptr<Client>>
      buried_clients_;  ///< May be on the stack; destroyed by a deferred call.
  std::vector<std::unique_ptr<ClientSideStream>> buried_streams_;
  ClientId next_id_ = 1;
  bool paused_ = false;
  bool burial_scheduled_ = false;
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace drupe
