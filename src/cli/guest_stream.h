// One stream of a sandbox, used in straight-line code: each call waits, running the loop nested, until it can
// be done.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/event_loop.h"
#include "base/result.h"
#include "image/source.h"
#include "shim/client.h"

namespace drupe::cli {

/// Used by the loop's thread; `loop` and `client` are borrowed. Destroying it resets a stream that has not
/// ended. As a ByteSource it gives the stream's stdout, taking credit only for what was read.
class GuestStream : public ByteSource {
 public:
  static Result<std::unique_ptr<GuestStream>> open(EventLoop& loop, ShimClient& client,
                                                   const OpenRequest& request);
  ~GuestStream() override;
  GuestStream(const GuestStream&) = delete;
  GuestStream& operator=(const GuestStream&) = delete;

  /// Sends all bytes, as fast as the guest takes them. The operation's own error, if it has ended.
  Status write(std::string_view bytes);
  void close_stdin();
  Result<std::size_t> read(std::span<std::uint8_t> into) override;
  /// Waits for the end; output not yet read is dropped. An operation that failed is its error.
  Result<ExitFacts> finish();

 private:
  GuestStream(EventLoop& loop, ShimClient& client) : loop_(loop), client_(client) {}
  StreamHandler handler();
  Status wait_for(const std::function<bool()>& done);
  /// Of an operation that has ended.
  [[nodiscard]] Error end_error() const;

  EventLoop& loop_;
  ShimClient& client_;
  ShimClient::StreamId stream_ = 0;
  std::string buffer_;
  std::size_t offset_ = 0;
  bool writable_ = true, output_ended_ = false, dropping_ = false;
  std::optional<ExitFacts> facts_;
  std::optional<Error> error_;
};

/// What is at `path` in the guest; nothing when there is nothing.
Result<std::optional<StatResult>> guest_stat(EventLoop& loop, ShimClient& client, const std::string& path,
                                             bool follow);

}  // namespace drupe::cli
