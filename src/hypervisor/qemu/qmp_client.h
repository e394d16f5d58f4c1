// Commands to a running qemu over an inherited socketpair, one at a time, answers awaited in a nested event
// loop.
#pragma once

#include <deque>
#include <functional>
#include <initializer_list>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "base/event_loop.h"
#include "base/result.h"
#include "base/unique_fd.h"
#include "hypervisor/qemu/qmp_message.h"

namespace drupe {

/// Owns its end of the socketpair. Thread of the loop.
class QmpClient {
 public:
  using OnEvent = std::function<void(const QmpMessage&)>;

  QmpClient(EventLoop& loop, UniqueFd socket, OnEvent on_event);
  ~QmpClient();
  QmpClient(const QmpClient&) = delete;
  QmpClient& operator=(const QmpClient&) = delete;

  /// Watches the socket. Call once.
  Status start();
  /// Waits for the greeting.
  Status await_greeting(Deadline deadline);
  /// Sends a command without waiting; its id. `fds` travel with it (SCM_RIGHTS), for getfd and add-fd.
  Result<std::string> send(std::string_view command, std::string_view arguments = {},
                           std::initializer_list<int> fds = {});
  /// Waits for the answer to `id`. kVmLost: the connection ended; kTimeout; else qemu's own description.
  Result<QmpMessage> await(const std::string& id, Deadline deadline);
  Result<QmpMessage> execute(std::string_view command, std::string_view arguments, Deadline deadline,
                             std::initializer_list<int> fds = {});
  /// Ends every wait: the process is gone or broke the protocol.
  void close(Error reason);
  [[nodiscard]] bool closed() const { return closed_.has_value(); }
  [[nodiscard]] const std::optional<Error>& close_reason() const { return closed_; }

 private:
  void on_readable();
  void on_line(std::string_view line);
  /// Sends all bytes; qemu reads its monitor whenever its main loop runs, so what does not fit at once is an
  /// error.
  Status send_bytes(std::string_view bytes, std::initializer_list<int> fds);

  EventLoop& loop_;
  UniqueFd socket_;
  OnEvent on_event_;
  std::string buffer_;
  bool greeted_ = false;
  std::uint64_t next_id_ = 1;
  std::map<std::string, QmpMessage> answers_;
  std::map<std::string, bool> pending_;
  std::optional<Error> closed_;
};

}  // namespace drupe
