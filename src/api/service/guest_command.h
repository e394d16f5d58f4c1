// Running one command in a sandbox for a client who may leave, and moving bytes of files.
#pragma once

#include <chrono>
#include <functional>
#include <string>
#include <string_view>

#include "base/event_loop.h"
#include "base/result.h"
#include "protocol/messages.h"
#include "shim/client.h"

namespace drupe::api {

/// What happens while a stream of the guest is served; may block, the guest waits meanwhile. An error ends
/// the stream.
struct StreamSink {
  std::function<Status(Channel, std::string_view bytes)> on_data;
  /// Nothing has come for `quiet`.
  std::function<Status()> on_quiet;
  std::chrono::milliseconds quiet{5000};
};

/// Opens the stream, writes `input` to its stdin, and serves it to its end. kCancelled when the client on
/// `client_fd` leaves before (-1: there is none): the guest's side is ended then, with all its processes.
Result<ExitFacts> serve_stream(EventLoop& loop, ShimClient& client, const OpenRequest& request,
                               std::string_view input, int client_fd, const StreamSink& sink);

/// Next bytes of a source, 0 at its end.
using ByteReaderFunction = std::function<Result<std::size_t>(std::span<char>)>;
/// Opens the stream and writes what `read` gives to its stdin; how it ended.
Result<ExitFacts> feed_guest(EventLoop& loop, ShimClient& client, const OpenRequest& request,
                             const ByteReaderFunction& read);
/// Writes what `read` gives into the guest's file; a failed source leaves nothing behind.
Result<StatResult> write_guest_file(EventLoop& loop, ShimClient& client, const FileOptions& file,
                                    const ByteReaderFunction& read);
Result<StatResult> stat_guest_file(EventLoop& loop, ShimClient& client, const std::string& path);

}  // namespace drupe::api
