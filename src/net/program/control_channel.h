// Records of the control socket (protocol/net_control.h): cut on the way in, queued on the way out.
#pragma once

#include <deque>
#include <functional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/event_loop.h"

namespace drupe::net {

/// Owns the socket. While its peer leaves more than kMaxControlRecord of answers unread, no request is read.
/// One thread, that of `loop`.
class ControlChannel {
 public:
  /// `on_record` gets an id and a payload and may call send(). `on_closed` comes once: the peer closed (kNone
  /// of an error), or broke the format or the socket.
  using OnRecord = std::function<void(std::uint32_t id, ByteView payload)>;
  using OnClosed = std::function<void(Status why)>;
  ControlChannel(EventLoop& loop, UniqueFd socket, OnRecord on_record, OnClosed on_closed);
  ~ControlChannel();
  ControlChannel(const ControlChannel&) = delete;
  ControlChannel& operator=(const ControlChannel&) = delete;

  Status start();
  void send(std::uint32_t id, std::string_view payload);
  /// The next descriptor that came: in the order of the records that they belong to. Invalid: none.
  [[nodiscard]] UniqueFd take_descriptor();

  /// Descriptors that no record has taken; more break the format.
  static constexpr std::size_t kMaxDescriptors = 64;

 private:
  void on_socket(std::uint32_t events);
  void read();
  bool take_records();
  void write();
  void watch_again();
  void close(Status why);

  EventLoop& loop_;
  UniqueFd socket_;
  OnRecord on_record_;
  OnClosed on_closed_;
  std::string in_, out_;
  std::deque<UniqueFd> descriptors_;
  std::uint32_t events_ = 0;
  bool closed_ = false;
};

}  // namespace drupe::net
