#include "api/service/guest_command.h"

#include <array>
#include <deque>
#include <span>

#include <sys/epoll.h>

namespace drupe::api {
namespace {

/// One stream with what came of it and was not yet passed on.
class Stream {
 public:
  Stream(EventLoop& loop, ShimClient& client) : loop_(loop), client_(client) {}
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() {
    if (client_fd_ >= 0) loop_.unwatch(client_fd_);
    if (open_ && !ended()) client_.reset(id_, "the client left");
  }

  Status open(const OpenRequest& request) {
    StreamHandler handler;
    handler.on_data = [this](Channel channel, std::string_view bytes) {
      queue_.emplace_back(channel, bytes);
    };
    handler.on_exit = [this](const ExitFacts& facts) { facts_ = facts; };
    handler.on_error = [this](const Error& error) { error_ = error; };
    handler.on_writable = [this] { writable_ = true; };
    DRUPE_ASSIGN(id_, client_.open(request, std::move(handler)));
    open_ = true;
    client_.set_manual_credit(id_);
    return {};
  }

  Status watch_client(int fd) {
    if (fd < 0) return {};
    DRUPE_TRY(loop_.watch(fd, EPOLLRDHUP, [this](std::uint32_t) {
      client_left_ = true;
      loop_.unwatch(std::exchange(client_fd_, -1));
    }));
    client_fd_ = fd;
    return {};
  }

  [[nodiscard]] bool ended() const { return facts_ || error_; }
  [[nodiscard]] bool client_left() const { return client_left_; }
  [[nodiscard]] bool has_data() const { return !queue_.empty(); }
  [[nodiscard]] bool can_write() const { return writable_; }

  Result<bool> wait(const std::function<bool()>& done, Deadline deadline) {
    return loop_.run_until(done, deadline);
  }

  /// Hears what has come already.
  Status listen() { return loop_.run_once(Clock::now()); }
  /// How much of `bytes` was taken.
  std::size_t write(std::string_view bytes) {
    writable_ = false;
    return client_.write(id_, bytes);
  }
  void close_stdin() {
    if (!ended()) client_.close_stdin(id_);
  }
  Status pass_on(const StreamSink& sink) {
    while (!queue_.empty()) {
      const auto [channel, bytes] = std::move(queue_.front());
      queue_.pop_front();
      if (sink.on_data) DRUPE_TRY(sink.on_data(channel, bytes));
      if (!ended()) client_.take(id_, channel, static_cast<std::uint32_t>(bytes.size()));
    }
    return {};
  }
  Result<ExitFacts> end() const {
    if (error_) return std::unexpected(*error_);
    return *facts_;
  }

 private:
  EventLoop& loop_;
  ShimClient& client_;
  ShimClient::StreamId id_ = 0;
  bool open_ = false, writable_ = true, client_left_ = false;
  int client_fd_ = -1;
  std::deque<std::pair<Channel, std::string>> queue_;
  std::optional<ExitFacts> facts_;
  std::optional<Error> error_;
};

Error left() {
  return {ErrorCode::kCancelled, "The client left", "", 0};
}

Result<StatResult> result_of(const ExitFacts& facts) {
  if (facts.error) return std::unexpected(*facts.error);
  ByteReader reader(facts.result);
  StatResult result = StatResult::read(reader);
  if (!reader.ok()) return fail(ErrorCode::kGuest, "The guest's answer about a file is malformed");
  return result;
}

}  // namespace

Result<ExitFacts> serve_stream(EventLoop& loop, ShimClient& client, const OpenRequest& request,
                               std::string_view input, int client_fd, const StreamSink& sink) {
  Stream stream(loop, client);
  DRUPE_TRY(stream.open(request));
  DRUPE_TRY(stream.watch_client(client_fd));
  const bool feeds = request.exec.stdin_open;
  bool fed = !feeds;
  Deadline quiet = sink.on_quiet ? Clock::now() + sink.quiet : Deadline::max();
  while (true) {
    if (!fed && stream.can_write()) {
      input.remove_prefix(stream.write(input));
      fed = input.empty();
      if (fed) stream.close_stdin();
    }
    DRUPE_ASSIGN(const bool came, stream.wait(
                                      [&] {
                                        return stream.has_data() || stream.ended() || stream.client_left() ||
                                               (!fed && stream.can_write());
                                      },
                                      quiet));
    if (stream.client_left()) return std::unexpected(left());
    if (stream.has_data() || !came) {
      DRUPE_TRY(stream.pass_on(sink));
      if (!came) DRUPE_TRY(sink.on_quiet());
      if (sink.on_quiet) quiet = Clock::now() + sink.quiet;
    }
    if (stream.ended() && !stream.has_data()) return stream.end();
  }
}

Result<ExitFacts> feed_guest(EventLoop& loop, ShimClient& client, const OpenRequest& request,
                             const ByteReaderFunction& read) {
  Stream stream(loop, client);
  DRUPE_TRY(stream.open(request));
  std::array<char, 65536> part{};
  while (!stream.ended()) {
    DRUPE_ASSIGN(const std::size_t count, read(part));
    if (count == 0) break;
    std::string_view rest(part.data(), count);
    while (!rest.empty() && !stream.ended()) {
      rest.remove_prefix(stream.write(rest));
      if (rest.empty()) break;
      DRUPE_TRY(stream.wait([&] { return stream.can_write() || stream.ended(); }, Deadline::max()));
    }
    // What the guest has to say about it is heard between two parts.
    DRUPE_TRY(stream.listen());
  }
  stream.close_stdin();
  DRUPE_TRY(stream.wait([&] { return stream.ended(); }, Deadline::max()));
  return stream.end();
}

Result<StatResult> write_guest_file(EventLoop& loop, ShimClient& client, const FileOptions& file,
                                    const ByteReaderFunction& read) {
  OpenRequest request;
  request.kind = OpenKind::kWriteFile;
  request.file = file;
  DRUPE_ASSIGN(const ExitFacts facts, feed_guest(loop, client, request, read));
  return result_of(facts);
}

Result<StatResult> stat_guest_file(EventLoop& loop, ShimClient& client, const std::string& path) {
  OpenRequest request;
  request.kind = OpenKind::kStat;
  request.file.path = path;
  DRUPE_ASSIGN(const ExitFacts facts, serve_stream(loop, client, request, {}, -1, {}));
  return result_of(facts);
}

}  // namespace drupe::api
