// A client of one sandbox's shim: requests, and streams for commands and files. Single-threaded, on an
// EventLoop; the blocking helpers run the loop nested.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "base/event_loop.h"
#include "base/unique_fd.h"
#include "protocol/messages.h"
#include "shim/messages.h"

namespace drupe {

/// Callbacks of one stream. All run on the loop; on_exit or on_error is the last one, exactly one of them
/// comes.
struct StreamHandler {
  std::function<void(const OpenedReply&)> on_opened;
  /// Returns when the bytes are taken; credit is granted back for them unless the stream is set to manual
  /// credit.
  std::function<void(Channel, std::string_view bytes)> on_data;
  std::function<void(Channel)> on_eof;
  std::function<void(const ExitFacts&)> on_exit;
  std::function<void(const Error&)> on_error;
  /// More stdin may be written.
  std::function<void()> on_writable;
};

/// The socket file of a sandbox (O_PATH), which is one and no link: the shim can put something else there.
Result<UniqueFd> open_socket_file(int sandbox_dir);

class ShimClient {
 public:
  virtual ~ShimClient() = default;
  /// Connects to `<dir>/shim.sock` through a directory descriptor and checks the peer's uid.
  /// kInvalidState when no shim listens there.
  static Result<std::unique_ptr<ShimClient>> connect(EventLoop& loop, int sandbox_dir);
  /// The same over a connection that exists.
  static Result<std::unique_ptr<ShimClient>> adopt(EventLoop& loop, UniqueFd fd);

  using StreamId = std::uint32_t;
  /// kAttach of exec id "main" attaches to the sandbox's main command (exec.stdin_open: and feeds its stdin,
  /// if nobody does yet). kInvalidState through on_error when there is none; its facts at once when it has
  /// ended.
  virtual Result<StreamId> open(const OpenRequest& request, StreamHandler handler) = 0;
  /// Takes as much as the credit and the buffer allow; returns how many bytes were taken. on_writable follows
  /// when it was short.
  virtual std::size_t write(StreamId stream, std::string_view bytes) = 0;
  virtual void close_stdin(StreamId stream) = 0;
  virtual void signal(StreamId stream, int signal_number, bool tree) = 0;
  virtual void resize(StreamId stream, std::uint16_t rows, std::uint16_t columns) = 0;
  virtual void reset(StreamId stream, std::string_view reason) = 0;
  /// Manual credit: on_data's bytes are not credited until take() says so. For slow consumers.
  virtual void set_manual_credit(StreamId stream) = 0;
  virtual void take(StreamId stream, Channel channel, std::uint32_t bytes) = 0;

  /// Sends a request and runs `done` with the reply's body.
  virtual void request(std::uint16_t kind, std::string_view body,
                       std::function<void(Result<std::string>)> done) = 0;
  /// The same, waiting.
  virtual Result<std::string> call(std::uint16_t kind, std::string_view body, Deadline deadline) = 0;
  /// Called once when the shim has gone; pending streams and requests have failed with kVmLost before.
  virtual void on_closed(std::function<void()> callback) = 0;
};

/// Runs a command to its end and collects what it wrote, each channel up to `limit` bytes (then `truncated`).
struct ExecResult {
  ExitFacts facts;
  std::string out, err;
  bool truncated = false;
};
Result<ExecResult> run_command(ShimClient& client, EventLoop& loop, const ExecOptions& options,
                               std::string_view input, std::size_t limit, Deadline deadline);

}  // namespace drupe
