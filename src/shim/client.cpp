#include "shim/client.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <map>
#include <optional>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include "base/files.h"
#include "protocol/credit.h"
#include "protocol/port.h"
#include "shim/messages.h"

namespace drupe {
namespace {

constexpr std::size_t kMaxRequestBody = kMaxPayload - sizeof(std::uint16_t);

Error lost() {
  return Error{ErrorCode::kVmLost, "The sandbox ended", "`drupe inspect` tells why.", 0};
}

Status check_peer(int fd) {
  ucred peer{};
  socklen_t size = sizeof peer;
  if (::getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0)
    return fail_sys("Asking who serves the sandbox failed", errno);
  if (peer.uid != ::geteuid())
    return fail(ErrorCode::kPermission, "The sandbox belongs to another user",
                "Run the command as the user who made it.");
  return {};
}

class Client final : public ShimClient {
 public:
  explicit Client(EventLoop& loop) : loop_(loop) {}
  ~Client() override { *alive_ = false; }

  Status start(UniqueFd fd) {
    Port::Callbacks callbacks;
    callbacks.on_frame = [this](const Frame& frame) { return on_frame(frame); };
    callbacks.on_broken = [this](Error error) { on_broken(std::move(error)); };
    callbacks.on_room = [this] { wake_writers(); };
    DRUPE_ASSIGN(port_, Port::create(loop_, std::move(fd), Port::Options{}, std::move(callbacks)));
    return {};
  }

  Result<StreamId> open(const OpenRequest& request, StreamHandler handler) override {
    if (port_->broken()) return std::unexpected(lost());
    const std::string encoded = request.encode();
    if (encoded.size() > kMaxOpenRequest)
      return fail(ErrorCode::kLimit, "The command's arguments and environment are longer than 4 MiB together",
                  "Pass large data through stdin or a file.");
    const StreamId id = next_stream_++;
    Stream& stream = streams_[id];
    stream.handler = std::make_shared<StreamHandler>(std::move(handler));
    std::string frames;
    append_open_frames(frames, id, encoded);
    port_->send_raw(frames);
    return id;
  }

  std::size_t write(StreamId id, std::string_view bytes) override {
    const auto found = streams_.find(id);
    if (found == streams_.end()) return 0;
    Stream& stream = found->second;
    std::size_t taken = 0;
    while (taken < bytes.size() && port_->has_room()) {
      const std::size_t part = std::min({bytes.size() - taken, kMaxPayload, stream.in.may_send()});
      if (part == 0) break;
      port_->send(FrameType::kData, Channel::kStdin, id, bytes.substr(taken, part));
      stream.in.consumed(part);
      taken += part;
    }
    stream.wants_room = taken < bytes.size();
    return taken;
  }

  void close_stdin(StreamId id) override {
    if (streams_.contains(id)) port_->send(FrameType::kEof, Channel::kStdin, id, {});
  }
  void signal(StreamId id, int number, bool tree) override {
    if (streams_.contains(id))
      port_->send(FrameType::kSignal, Channel::kStdin, id, encode_signal({number, tree}));
  }
  void resize(StreamId id, std::uint16_t rows, std::uint16_t columns) override {
    if (streams_.contains(id))
      port_->send(FrameType::kResize, Channel::kStdin, id, encode_resize({rows, columns}));
  }
  void reset(StreamId id, std::string_view reason) override {
    if (streams_.erase(id) == 0) return;
    port_->send(FrameType::kReset, Channel::kStdin, id,
                encode_reset(Error{ErrorCode::kCancelled, std::string(reason.substr(0, 1024)), {}, 0}));
  }
  void set_manual_credit(StreamId id) override {
    if (const auto found = streams_.find(id); found != streams_.end()) found->second.manual = true;
  }
  void take(StreamId id, Channel channel, std::uint32_t bytes) override {
    const auto found = streams_.find(id);
    if (found == streams_.end()) return;
    if (const auto grant = found->second.out.at(static_cast<std::size_t>(channel)).consumed(bytes);
        grant != 0)
      port_->send(FrameType::kCredit, channel, id, encode_credit(grant));
  }

  void request(std::uint16_t kind, std::string_view body,
               std::function<void(Result<std::string>)> done) override {
    if (port_->broken() || body.size() > kMaxRequestBody) {
      Error error =
          port_->broken() ? lost() : Error{ErrorCode::kLimit, "The request is longer than one frame", {}, 0};
      loop_.defer([done = std::move(done), error = std::move(error)] { done(std::unexpected(error)); });
      return;
    }
    const std::uint32_t id = next_request_++;
    requests_[id] = std::move(done);
    port_->send(FrameType::kRequest, Channel::kStdin, id, encode_request(kind, body));
  }

  Result<std::string> call(std::uint16_t kind, std::string_view body, Deadline deadline) override {
    // Shared: after the deadline the reply finds nobody waiting.
    auto reply = std::make_shared<std::optional<Result<std::string>>>();
    request(kind, body, [reply](Result<std::string> result) { *reply = std::move(result); });
    DRUPE_ASSIGN(const bool came, loop_.run_until([&] { return reply->has_value(); }, deadline));
    if (!came)
      return fail(ErrorCode::kTimeout, "The sandbox did not answer in time",
                  "It may be overloaded; try again.");
    return std::move(**reply);
  }

  void on_closed(std::function<void()> callback) override { closed_ = std::move(callback); }

 private:
  struct Stream {
    // Shared: a handler may end its own stream.
    std::shared_ptr<StreamHandler> handler;
    CreditSender in;
    std::array<CreditReceiver, kChannels> out;
    bool manual = false;
    bool wants_room = false;
  };

  Status on_frame(const Frame& frame) {
    if (frame.type == FrameType::kReply) return on_reply(frame);
    if (frame.type == FrameType::kEvent) return {};
    const auto found = streams_.find(frame.id);
    if (found == streams_.end()) return {};  // Reset by us a moment ago.
    switch (frame.type) {
      case FrameType::kOpened:
        return on_opened(found->second, frame);
      case FrameType::kData:
        return on_data(found->second, frame);
      case FrameType::kEof:
        if (const auto handler = found->second.handler; handler->on_eof) handler->on_eof(frame.channel);
        return {};
      case FrameType::kCredit:
        return on_credit(found->second, frame);
      case FrameType::kExit:
        return on_exit(frame);
      case FrameType::kReset:
        end_stream(frame.id, decode_reset(frame.payload));
        return {};
      default:
        return fail(ErrorCode::kIntegrity, "The sandbox's shim sent a frame that does not belong here");
    }
  }

  Status on_reply(const Frame& frame) {
    if (frame.id == kNoRequest) {
      if (auto reply = decode_reply(frame.payload); !reply) turned_away_ = std::move(reply).error();
      return {};
    }
    const auto found = requests_.find(frame.id);
    if (found == requests_.end()) return {};
    const auto done = std::move(found->second);
    requests_.erase(found);
    done(decode_reply(frame.payload));
    return {};
  }

  Status on_opened(Stream& stream, const Frame& frame) {
    DRUPE_ASSIGN(const OpenedReply opened, OpenedReply::decode(frame.payload));
    if (const auto handler = stream.handler; handler->on_opened) handler->on_opened(opened);
    return {};
  }

  Status on_data(Stream& stream, const Frame& frame) {
    DRUPE_TRY(stream.out.at(static_cast<std::size_t>(frame.channel)).received(frame.payload.size()));
    const auto alive = alive_;
    if (const auto handler = stream.handler; handler->on_data)
      handler->on_data(frame.channel, as_text(frame.payload));
    if (!*alive) return {};
    const auto still = streams_.find(frame.id);
    if (still != streams_.end() && !still->second.manual)
      take(frame.id, frame.channel, static_cast<std::uint32_t>(frame.payload.size()));
    return {};
  }

  Status on_credit(Stream& stream, const Frame& frame) {
    DRUPE_ASSIGN(const std::uint32_t bytes, decode_credit(frame.payload));
    DRUPE_TRY(stream.in.grant(bytes));
    if (!std::exchange(stream.wants_room, false)) return {};
    if (const auto handler = stream.handler; handler->on_writable) handler->on_writable();
    return {};
  }

  Status on_exit(const Frame& frame) {
    DRUPE_ASSIGN(const ExitFacts facts, ExitFacts::decode(frame.payload));
    const auto found = streams_.find(frame.id);
    const auto handler = found->second.handler;
    streams_.erase(found);
    if (handler->on_exit) handler->on_exit(facts);
    return {};
  }

  void end_stream(StreamId id, const Error& error) {
    const auto found = streams_.find(id);
    if (found == streams_.end()) return;
    const auto handler = found->second.handler;
    streams_.erase(found);
    if (handler->on_error) handler->on_error(error);
  }

  void wake_writers() {
    std::vector<StreamId> waiting;
    for (auto& [id, stream] : streams_)
      if (stream.wants_room && stream.in.may_send() != 0) waiting.push_back(id);
    const auto alive = alive_;
    for (const StreamId id : waiting) {
      const auto found = streams_.find(id);
      if (found == streams_.end()) continue;
      found->second.wants_room = false;
      if (const auto handler = found->second.handler; handler->on_writable) handler->on_writable();
      if (!*alive) return;
    }
  }

  void on_broken(Error error) {
    if (error.code == ErrorCode::kUnavailable || error.code == ErrorCode::kHost)
      error = turned_away_ ? *turned_away_ : lost();
    const auto alive = alive_;
    while (!streams_.empty()) {
      end_stream(streams_.begin()->first, error);
      if (!*alive) return;
    }
    while (!requests_.empty()) {
      const auto done = std::move(requests_.begin()->second);
      requests_.erase(requests_.begin());
      done(std::unexpected(error));
      if (!*alive) return;
    }
    if (closed_) std::exchange(closed_, nullptr)();
  }

  EventLoop& loop_;
  std::unique_ptr<Port> port_;
  std::map<StreamId, Stream> streams_;
  std::map<std::uint32_t, std::function<void(Result<std::string>)>> requests_;
  StreamId next_stream_ = 1;
  std::uint32_t next_request_ = 1;
  std::function<void()> closed_;
  std::optional<Error> turned_away_;  ///< Said before it closed the connection.
  std::shared_ptr<bool> alive_ = std::make_shared<bool>(true);
};

}  // namespace

Result<UniqueFd> open_socket_file(int sandbox_dir) {
  auto file = open_at(sandbox_dir, kSocketFile, O_PATH | O_NOFOLLOW);
  struct stat info{};
  if (file && (::fstat(file->get(), &info) != 0 || !S_ISSOCK(info.st_mode)))
    return fail(ErrorCode::kIntegrity, "The sandbox's socket is something else",
                "Remove the sandbox with `drupe rm -f`.");
  return file;
}

Result<std::unique_ptr<ShimClient>> ShimClient::connect(EventLoop& loop, int sandbox_dir) {
  UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return fail_sys("Creating a socket failed", errno);
  const auto place = open_socket_file(sandbox_dir);
  if (!place && place.error().code == ErrorCode::kNotFound)
    return fail(ErrorCode::kInvalidState, "The sandbox is not running", "Start it with `drupe start`.");
  if (!place) return std::unexpected(place.error());
  // Through a descriptor the path stays short, whatever the home's path is.
  const std::string path = proc_fd_path(place->get());
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::memcpy(address.sun_path, path.c_str(), path.size() + 1);
  int rc = -1;
  do rc = ::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  while (rc != 0 && errno == EINTR);
  if (rc != 0 && (errno == ENOENT || errno == ECONNREFUSED))
    return fail(ErrorCode::kInvalidState, "The sandbox is not running", "Start it with `drupe start`.");
  if (rc != 0) return fail_sys("Connecting to the sandbox failed", errno);
  return adopt(loop, std::move(fd));
}

Result<std::unique_ptr<ShimClient>> ShimClient::adopt(EventLoop& loop, UniqueFd fd) {
  DRUPE_TRY(check_peer(fd.get()));
  auto client = std::make_unique<Client>(loop);
  DRUPE_TRY(client->start(std::move(fd)));
  return client;
}

namespace {

struct Collector {
  ExecResult result;
  std::optional<Error> error;
  bool ended = false;

  void take(Channel channel, std::string_view bytes, std::size_t limit) {
    std::string& into = channel == Channel::kStderr ? result.err : result.out;
    const std::size_t room = limit - std::min(limit, into.size());
    into.append(bytes.substr(0, room));
    if (bytes.size() > room) result.truncated = true;
  }
};

}  // namespace

Result<ExecResult> run_command(ShimClient& client, EventLoop& loop, const ExecOptions& options,
                               std::string_view input, std::size_t limit, Deadline deadline) {
  auto state = std::make_shared<Collector>();
  auto stream = std::make_shared<ShimClient::StreamId>(0);
  auto rest = std::make_shared<std::string>(input);
  const auto feed = [&client, stream, rest] {
    if (rest->empty()) return;
    rest->erase(0, client.write(*stream, *rest));
    if (rest->empty()) client.close_stdin(*stream);
  };
  OpenRequest request;
  request.exec = options;
  if (!input.empty()) request.exec.stdin_open = true;
  StreamHandler handler;
  handler.on_data = [state, limit](Channel channel, std::string_view bytes) {
    state->take(channel, bytes, limit);
  };
  handler.on_exit = [state](const ExitFacts& facts) {
    state->result.facts = facts;
    state->ended = true;
  };
  handler.on_error = [state](const Error& error) {
    state->error = error;
    state->ended = true;
  };
  handler.on_writable = feed;
  DRUPE_ASSIGN(*stream, client.open(request, std::move(handler)));
  feed();
  auto waited = loop.run_until([&] { return state->ended; }, deadline);
  if (!waited || !*waited) client.reset(*stream, "the caller stopped waiting");
  if (!waited) return std::unexpected(std::move(waited).error());
  if (!*waited) return fail(ErrorCode::kTimeout, "The command did not end in time");
  if (state->error) return std::unexpected(std::move(*state->error));
  return std::move(state->result);
}

}  // namespace drupe
