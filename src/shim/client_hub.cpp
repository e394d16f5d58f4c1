#include "shim/client_hub.h"

#include <cerrno>
#include <cstring>

#include <sys/epoll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/log.h"
#include "shim/messages.h"

namespace drupe {
namespace {

constexpr int kBacklog = 64;

std::unexpected<Error> foul(std::string_view what) {
  return fail(ErrorCode::kIntegrity, "A client broke the protocol: " + std::string(what));
}

}  // namespace

void ClientStreamRef::send(FrameType type, Channel channel, std::string_view payload) const {
  if (hub_ != nullptr) hub_->send(client_, type, channel, stream_, payload);
}
void ClientStreamRef::exit(std::string_view facts) const {
  if (hub_ != nullptr) hub_->end_stream(client_, stream_, FrameType::kExit, facts);
}
void ClientStreamRef::reset(const Error& error) const {
  if (hub_ != nullptr) hub_->end_stream(client_, stream_, FrameType::kReset, encode_reset(error));
}

ClientHub::~ClientHub() {
  *alive_ = false;
  stop_listening();
}

Status ClientHub::listen(const std::string& name) {
  listener_ = UniqueFd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!listener_.valid()) return fail_sys("Creating the sandbox's socket failed", errno);
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  if (name.size() >= sizeof address.sun_path)
    return fail(ErrorCode::kInvalidArgument, "The socket's name is too long");
  std::memcpy(address.sun_path, name.c_str(), name.size() + 1);
  if (::unlink(name.c_str()) != 0 && errno != ENOENT) return fail_sys("Removing an old socket failed", errno);
  const mode_t before = ::umask(0177);
  const int rc = ::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  const int err = errno;
  ::umask(before);
  if (rc != 0) return fail_sys("Binding the sandbox's socket failed", err);
  if (::listen(listener_.get(), kBacklog) != 0) return fail_sys("Listening for clients failed", errno);
  return loop_.watch(listener_.get(), EPOLLIN, [this](std::uint32_t) { accept_all(); });
}

void ClientHub::stop_listening() {
  if (!listener_.valid()) return;
  loop_.unwatch(listener_.get());
  listener_.reset();
}

void ClientHub::accept_all() {
  while (listener_.valid() && !paused_) {
    UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (!fd.valid() && (errno == EINTR || errno == ECONNABORTED)) continue;
    if (!fd.valid()) return;
    if (auto adopted = adopt(std::move(fd)); !adopted) log(LogLevel::kInfo, adopted.error().message);
  }
}

namespace {

/// An answer to no request, as it fits the empty buffer of a connection that nobody has written to.
void turn_away(int connection) {
  const Error error{ErrorCode::kLimit,
                    "The sandbox serves " + std::to_string(ClientHub::kMaxClients) + " clients already",
                    "Try again when one of them has ended.", 0};
  std::string frame;
  append_frame(frame, FrameType::kReply, Channel::kStdin, kNoRequest, encode_error_reply(error));
  [[maybe_unused]] const ssize_t sent =
      ::send(connection, frame.data(), frame.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
}

}  // namespace

Status ClientHub::adopt(UniqueFd connection) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(connection.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return fail_sys("Asking who a client is failed", errno);
  if (peer.uid != ::geteuid())
    return fail(ErrorCode::kPermission, "A client of another user was turned away");
  if (clients_.size() >= kMaxClients) {
    turn_away(connection.get());
    return fail(ErrorCode::kLimit, "A client beyond the limit was turned away");
  }
  const ClientId id = next_id_++;
  auto client = std::make_unique<Client>();
  client->id = id;
  client->pid = peer.pid;
  Port::Callbacks callbacks;
  callbacks.on_frame = [this, id](const Frame& frame) { return on_frame(id, frame); };
  callbacks.on_broken = [this, id](const Error& error) {
    if (error.code != ErrorCode::kUnavailable) log(LogLevel::kInfo, "A client was dropped: " + error.message);
    remove(id);
  };
  DRUPE_ASSIGN(client->port,
               Port::create(loop_, std::move(connection), Port::Options{}, std::move(callbacks)));
  if (paused_) client->port->pause_reading(true);
  clients_[id] = std::move(client);
  if (delegate_.on_connected) delegate_.on_connected(id, peer.pid);
  if (delegate_.on_activity) delegate_.on_activity();
  return {};
}

void ClientHub::pause_reading(bool paused) {
  paused_ = paused;
  for (auto& [id, client] : clients_) client->port->pause_reading(paused);
  if (!listener_.valid()) return;
  // The watch exists as long as the listener does.
  [[maybe_unused]] const auto changed =
      loop_.modify(listener_.get(), paused ? 0U : static_cast<std::uint32_t>(EPOLLIN));
}

ClientHub::Client* ClientHub::find(ClientId id) {
  const auto found = clients_.find(id);
  return found == clients_.end() ? nullptr : found->second.get();
}

std::size_t ClientHub::streams() const {
  std::size_t sum = 0;
  for (const auto& [id, client] : clients_) sum += client->streams.size();
  return sum;
}

// --- frames of clients
// -------------------------------------------------------------------------------------------------

Status ClientHub::on_frame(ClientId id, const Frame& frame) {
  Client* client = find(id);
  if (client == nullptr) return {};
  switch (frame.type) {
    case FrameType::kRequest:
      return on_request(*client, frame);
    case FrameType::kOpen:
      return on_open(*client, frame);
    case FrameType::kData:
    case FrameType::kEof:
    case FrameType::kCredit:
    case FrameType::kSignal:
    case FrameType::kResize:
    case FrameType::kReset:
      return on_stream_frame(*client, frame);
    default:
      return foul("a frame that only the other side sends");
  }
}

Status ClientHub::on_request(Client& client, const Frame& frame) {
  DRUPE_ASSIGN(const RequestView request, decode_request(frame.payload));
  if (client.pending >= kMaxPendingRequests) return foul("too many requests at once");
  ++client.pending;
  const auto answer = [this, alive = alive_, id = client.id,
                       number = frame.id](const Result<std::string>& result) {
    if (*alive) reply(id, number, result);
  };
  delegate_.on_request(client.id, request.kind, request.body, answer);
  return {};
}

void ClientHub::reply(ClientId id, std::uint32_t request, const Result<std::string>& result) {
  Client* client = find(id);
  if (client == nullptr) return;
  --client->pending;
  std::string payload = result ? encode_reply(*result) : encode_error_reply(result.error());
  if (payload.size() > kMaxPayload)
    payload = encode_error_reply(Error{ErrorCode::kLimit, "The answer is longer than one frame", {}, 0});
  client->port->send(FrameType::kReply, Channel::kStdin, request, payload);
}

Status ClientHub::on_open(Client& client, const Frame& frame) {
  if (client.opening.contains(frame.id) || client.streams.contains(frame.id))
    return foul("a stream opened twice");
  if (client.opening.size() >= kMaxOpening || client.streams.size() >= kMaxStreamsPerClient)
    return foul("too many streams");
  DRUPE_ASSIGN(OpenAssembler assembler, OpenAssembler::begin(frame.payload));
  client.opening.emplace(frame.id, std::move(assembler));
  return finish_open(client, frame.id);
}

Status ClientHub::finish_open(Client& client, std::uint32_t stream) {
  const auto found = client.opening.find(stream);
  if (!found->second.complete()) return {};
  auto request = found->second.decode();
  client.opening.erase(found);
  const ClientId id = client.id;
  // A request that makes no sense is an answer, not a crime: the client may be newer than this program.
  if (!request) {
    send(id, FrameType::kReset, Channel::kStdin, stream, encode_reset(request.error()));
    return {};
  }
  const ClientStreamRef ref(this, id, stream);
  // The slot exists before the stream does, so that a stream that ends at once finds it.
  client.streams.emplace(stream, nullptr);
  auto opened = delegate_.open_stream(ref, std::move(*request));
  Client* still = find(id);
  if (!opened) {
    ref.reset(opened.error());
    return {};
  }
  const auto slot = still == nullptr ? client.streams.end() : still->streams.find(stream);
  if (still == nullptr || slot == still->streams.end())
    bury(std::move(*opened));
  else
    slot->second = std::move(*opened);
  if (delegate_.on_activity) delegate_.on_activity();
  return {};
}

Status ClientHub::on_stream_frame(Client& client, const Frame& frame) {
  if (const auto opening = client.opening.find(frame.id); opening != client.opening.end()) {
    if (frame.type != FrameType::kData || frame.channel != Channel::kStdin)
      return foul("an open that is not complete");
    DRUPE_TRY(opening->second.add(frame.payload));
    return finish_open(client, frame.id);
  }
  const auto found = client.streams.find(frame.id);
  // Frames may cross the stream's end.
  if (found == client.streams.end() || found->second == nullptr) return {};
  if (frame.type == FrameType::kReset) {
    auto stream = std::move(found->second);
    client.streams.erase(found);
    stream->on_client_gone(decode_reset(frame.payload).message);
    bury(std::move(stream));
    if (delegate_.on_activity) delegate_.on_activity();
    return {};
  }
  if ((frame.type == FrameType::kData || frame.type == FrameType::kEof) && frame.channel != Channel::kStdin)
    return foul("data on a channel that is not its own");
  return found->second->on_client_frame(frame);
}

// --- frames to clients
// -------------------------------------------------------------------------------------------------

void ClientHub::send(ClientId id, FrameType type, Channel channel, std::uint32_t stream,
                     std::string_view payload) {
  if (Client* client = find(id); client != nullptr) client->port->send(type, channel, stream, payload);
}

void ClientHub::end_stream(ClientId id, std::uint32_t stream, FrameType type, std::string_view payload) {
  Client* client = find(id);
  if (client == nullptr) return;
  const auto found = client->streams.find(stream);
  if (found == client->streams.end()) return;
  client->port->send(type, Channel::kStdin, stream, payload);
  bury(std::move(found->second));
  client->streams.erase(found);
  if (delegate_.on_activity) delegate_.on_activity();
}

void ClientHub::reset_all(const Error& error) {
  const std::string payload = encode_reset(error);
  for (auto& [id, client] : clients_) {
    for (auto& [stream, side] : client->streams) {
      client->port->send(FrameType::kReset, Channel::kStdin, stream, payload);
      bury(std::move(side));
    }
    client->streams.clear();
  }
}

void ClientHub::drain(std::chrono::milliseconds at_most) {
  const auto taken = [this] {
    for (const auto& [id, client] : clients_)
      if (client->port->queued() != 0) return false;
    return true;
  };
  // A client that does not read in this time loses what it has not read.
  [[maybe_unused]] const auto drained = loop_.run_until(taken, Clock::now() + at_most);
}

void ClientHub::remove(ClientId id) {
  const auto found = clients_.find(id);
  if (found == clients_.end()) return;
  auto client = std::move(found->second);
  clients_.erase(found);
  for (auto& [number, stream] : client->streams)
    if (stream != nullptr) stream->on_client_gone("the client went away");
  const int pid = client->pid;
  buried_clients_.push_back(std::move(client));
  bury(nullptr);
  if (delegate_.on_disconnected) delegate_.on_disconnected(id, pid);
  if (delegate_.on_activity) delegate_.on_activity();
}

void ClientHub::bury(std::unique_ptr<ClientSideStream> stream) {
  if (stream != nullptr) buried_streams_.push_back(std::move(stream));
  if (std::exchange(burial_scheduled_, true)) return;
  loop_.defer([this, alive = alive_] {
    if (!*alive) return;
    burial_scheduled_ = false;
    buried_clients_.clear();
    buried_streams_.clear();
  });
}

}  // namespace drupe
