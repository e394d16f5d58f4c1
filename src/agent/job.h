// A process behind a stream: a user's command or a built-in file operation.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "agent/cgroups.h"
#include "base/event_loop.h"
#include "protocol/credit.h"
#include "protocol/messages.h"
#include "protocol/port.h"

namespace drupe::agent {

class Job;

/// What a job needs of the server around it.
class JobHost {
 public:
  virtual ~JobHost() = default;
  virtual EventLoop& loop() = 0;
  virtual Port& bulk() = 0;
  /// True from the moment before a barrier until the thaw: nothing may be sent.
  [[nodiscard]] virtual bool quiet() const = 0;
  virtual void release(std::unique_ptr<ExecCgroup> cgroup) = 0;
  /// A descriptor that some left-over process may still write to: read and thrown away until it ends.
  virtual void drain(UniqueFd fd) = 0;
  /// Facts are final; the kExit frame was sent if a stream was attached. The job may be destroyed after the
  /// callback returns.
  virtual void job_finished(Job& job) = 0;
};

/// Output while no stream is attached is kept in a ring of this size a channel.
inline constexpr std::size_t kRingSize = 64 * 1024;

/// Used by the loop's thread only. Destroying a running job does not kill its processes.
class Job {
 public:
  struct Process {
    UniqueFd pidfd;
    UniqueFd in, out, err;               ///< Our ends; invalid when there is none.
    UniqueFd status;                     ///< See launch.h; for a task its encoded ExitFacts.
    std::unique_ptr<ExecCgroup> cgroup;  ///< Null for a task.
    /// Set for a ready child (ready_child.h): starts its command once more. Used when the child ends before
    /// it has told its pid, so has run nothing.
    std::function<Result<Process>()> again;
    bool tty = false;
    bool keep_on_reset = false;
    std::uint64_t timeout_ms = 0;
  };
  Job(JobHost& host, std::string exec_id, Process process);
  ~Job();
  Job(const Job&) = delete;
  Job& operator=(const Job&) = delete;

  /// Starts watching; separate from the constructor because it may call back.
  void start();
  /// Gives the job a stream: first what is in the ring, then what comes.
  void attach(std::uint32_t stream);
  /// The stream is gone without a word (a new epoch, or another one took over).
  void detach();
  /// The host reset the stream: detach, and kill unless the process is to be kept.
  void reset_by_host();

  // Frames of the stream. An error resets it.
  Status on_data(ByteView bytes);
  Status on_eof();
  Status on_credit(Channel channel, std::uint32_t bytes);
  void on_resize(const ResizePayload& size);
  /// Also from the control port.
  void signal(int number, bool tree);

  /// Sends what can be sent; called when the port has room again.
  void pump();
  /// Around a freeze.
  void pause();
  void resume();

  [[nodiscard]] std::uint32_t stream() const { return stream_; }
  [[nodiscard]] const std::string& exec_id() const { return exec_id_; }
  [[nodiscard]] bool is_task() const { return is_task_; }
  [[nodiscard]] bool finished() const { return finished_; }
  [[nodiscard]] const ExecCgroup* cgroup() const { return process_.cgroup.get(); }
  [[nodiscard]] int pidfd() const { return process_.pidfd.get(); }

 private:
  struct Output {
    UniqueFd fd;
    Channel channel{};
    CreditSender credit;
    std::string pending;   ///< The ring; while attached, what is left of it.
    bool ended = false;    ///< End of file was read.
    bool drained = false;  ///< All that was there when the leader exited has been read.
    bool watched = false;
    bool widened = false;        ///< The pipe has been given more room.
    std::size_t after_exit = 0;  ///< Bytes to read after the leader's exit.
  };
  struct Input {
    UniqueFd fd;
    std::string queue;
    std::size_t begin = 0;
    CreditReceiver credit;
    bool end_wanted = false;
    bool watched = false;
  };

  void on_status();
  void status_complete();
  void process_ended();
  void adopt(Process process);
  void order_taken();
  void start_again();
  void await_tree();
  void tree_ended();
  void leave_cgroup();
  void time_out();
  void announce();
  void pump_output(Output& output);
  bool send_pending(Output& output);
  [[nodiscard]] std::size_t readable_now(const Output& output) const;
  ssize_t read_output(Output& output, std::size_t size);
  void widen(Output& output) const;
  void keep(Output& output, std::string_view bytes);
  void watch_output(Output& output);
  void write_input();
  void send_terminal_end();
  void watch_input();
  void close_input();
  void check_finished();
  void send_exit();
  void begin_drain(Output& output);
  [[nodiscard]] bool quiet() const { return host_.quiet(); }

  JobHost& host_;
  std::string exec_id_;
  Process process_;
  bool is_task_;
  std::uint32_t stream_ = 0;  ///< 0: detached.
  std::array<Output, 2> outputs_;
  Input input_;
  std::string status_bytes_;
  std::int32_t pid_ = 0;
  ExitFacts facts_;
  std::uint64_t started_ns_;
  EventLoop::TimerId timer_ = 0;
  EventLoop::TimerId end_timer_ = 0;   ///< Of send_terminal_end().
  EventLoop::TimerId tree_timer_ = 0;  ///< Of await_tree(); not 0: the leader's end is not told yet.
  bool tree_killed_ = false;
  EventLoop::TimerId nudge_timer_ = 0;  ///< While a ready child has not taken its order.
  bool started_ = false;                ///< The status pipe said that the command runs (a task: at once).
  bool status_closed_ = false;
  bool ended_ = false;  ///< The leader is reaped.
  bool finished_ = false;
  bool timed_out_ = false;
  bool timeout_missed_ = false;
};

}  // namespace drupe::agent
