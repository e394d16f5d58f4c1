#include "cli/guest_stream.h"

#include <algorithm>
#include <cerrno>

namespace drupe::cli {

Result<std::unique_ptr<GuestStream>> GuestStream::open(EventLoop& loop, ShimClient& client,
                                                       const OpenRequest& request) {
  std::unique_ptr<GuestStream> stream(new GuestStream(loop, client));
  DRUPE_ASSIGN(stream->stream_, client.open(request, stream->handler()));
  client.set_manual_credit(stream->stream_);
  return stream;
}

GuestStream::~GuestStream() {
  if (!facts_ && !error_) client_.reset(stream_, "the client left");
}

StreamHandler GuestStream::handler() {
  StreamHandler handler;
  handler.on_data = [this](Channel channel, std::string_view bytes) {
    if (dropping_ || channel != Channel::kStdout) {
      client_.take(stream_, channel, static_cast<std::uint32_t>(bytes.size()));
    } else {
      buffer_.append(bytes);
    }
  };
  handler.on_eof = [this](Channel channel) { output_ended_ = output_ended_ || channel == Channel::kStdout; };
  handler.on_exit = [this](const ExitFacts& facts) { facts_ = facts; };
  handler.on_error = [this](const Error& error) { error_ = error; };
  handler.on_writable = [this] { writable_ = true; };
  return handler;
}

Status GuestStream::wait_for(const std::function<bool()>& done) {
  DRUPE_ASSIGN([[maybe_unused]] const bool in_time, loop_.run_until(done, Deadline::max()));
  return {};
}

Error GuestStream::end_error() const {
  if (error_) return *error_;
  if (facts_ && facts_->error) return *facts_->error;
  return {ErrorCode::kGuest, "The guest ended the transfer early", "", 0};
}

Status GuestStream::write(std::string_view bytes) {
  while (!bytes.empty()) {
    if (facts_ || error_) return std::unexpected(end_error());
    writable_ = false;
    bytes.remove_prefix(client_.write(stream_, bytes));
    if (!bytes.empty()) DRUPE_TRY(wait_for([this] { return writable_ || facts_ || error_; }));
  }
  return {};
}

void GuestStream::close_stdin() {
  if (!facts_ && !error_) client_.close_stdin(stream_);
}

Result<std::size_t> GuestStream::read(std::span<std::uint8_t> into) {
  DRUPE_TRY(wait_for([this] { return offset_ < buffer_.size() || output_ended_ || facts_ || error_; }));
  if (offset_ == buffer_.size()) {
    if (error_ || (facts_ && facts_->error)) return std::unexpected(end_error());
    return 0;
  }
  const std::size_t count = std::min(into.size(), buffer_.size() - offset_);
  std::copy_n(buffer_.data() + offset_, count, into.begin());
  offset_ += count;
  if (offset_ == buffer_.size()) {
    buffer_.clear();
    offset_ = 0;
  }
  if (!facts_ && !error_) client_.take(stream_, Channel::kStdout, static_cast<std::uint32_t>(count));
  return count;
}

Result<ExitFacts> GuestStream::finish() {
  dropping_ = true;
  const auto left = static_cast<std::uint32_t>(buffer_.size() - offset_);
  if (left > 0 && !facts_ && !error_) client_.take(stream_, Channel::kStdout, left);
  buffer_.clear();
  offset_ = 0;
  DRUPE_TRY(wait_for([this] { return facts_ || error_; }));
  if (error_ || facts_->error) return std::unexpected(end_error());
  return *facts_;
}

Result<std::optional<StatResult>> guest_stat(EventLoop& loop, ShimClient& client, const std::string& path,
                                             bool follow) {
  OpenRequest request;
  request.kind = OpenKind::kStat;
  request.file.path = path;
  request.file.no_follow = !follow;
  DRUPE_ASSIGN(const auto stream, GuestStream::open(loop, client, request));
  auto facts = stream->finish();
  if (!facts) {
    const Error& error = facts.error();
    if (error.code == ErrorCode::kNotFound || error.sys_errno == ENOENT) return std::nullopt;
    return std::unexpected(std::move(facts).error());
  }
  ByteReader reader(facts->result);
  StatResult result = StatResult::read(reader);
  if (!reader.ok()) return fail(ErrorCode::kGuest, "The guest's answer about " + path + " is malformed");
  return result;
}

}  // namespace drupe::cli
