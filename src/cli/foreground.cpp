#include "cli/foreground.h"

#include <cerrno>
#include <cstring>

#include <signal.h>
#include <unistd.h>

#include "cli/input_source.h"
#include "cli/output_sink.h"
#include "cli/signal_watch.h"
#include "cli/tail_buffer.h"
#include "cli/terminal.h"

namespace drupe::cli {
namespace {

/// So many signals to end, and the command is left behind.
constexpr int kInsisted = 3;
constexpr auto kPipeGrace = std::chrono::seconds(2);

class Foreground {
 public:
  Foreground(EventLoop& loop, ShimClient& client, const ForegroundOptions& options)
      : loop_(loop),
        client_(client),
        options_(options),
        out_(loop, STDOUT_FILENO),
        err_(loop, STDERR_FILENO),
        in_(loop, STDIN_FILENO),
        kept_out_(kCaptureLimit),
        kept_err_(kCaptureLimit) {}

  Result<ForegroundResult> run(const OpenRequest& request);

 private:
  StreamHandler handler();
  Status watch_signals();
  void prepare_output();
  void start_input();
  void on_data(Channel channel, std::string_view bytes);
  void on_signal(int number);
  void on_stdout_broken(int error);
  [[nodiscard]] bool finished() const;

  EventLoop& loop_;
  ShimClient& client_;
  const ForegroundOptions& options_;
  OutputSink out_, err_;
  InputSource in_;
  TailBuffer kept_out_, kept_err_;
  ShimClient::StreamId stream_ = 0;
  std::unique_ptr<SignalWatch> signals_;
  std::optional<RawTerminal> raw_;
  std::optional<EventLoop::TimerId> pipe_timer_;
  bool ended_ = false;
  int insisted_ = 0;
  ForegroundResult result_;
};

StreamHandler Foreground::handler() {
  StreamHandler handler;
  handler.on_data = [this](Channel channel, std::string_view bytes) { on_data(channel, bytes); };
  handler.on_exit = [this](const ExitFacts& facts) {
    result_.facts = facts;
    ended_ = true;
  };
  handler.on_error = [this](const Error& error) {
    result_.error = error;
    ended_ = true;
  };
  handler.on_writable = [this] { in_.resume(); };
  return handler;
}

void Foreground::on_data(Channel channel, std::string_view bytes) {
  const bool is_error = channel == Channel::kStderr;
  if (options_.capture) {
    (is_error ? kept_err_ : kept_out_).append(bytes);
  } else {
    (is_error ? err_ : out_).write(bytes);
  }
}

void Foreground::prepare_output() {
  if (options_.capture) return;
  client_.set_manual_credit(stream_);
  out_.set_events({[this](std::uint32_t bytes) {
                     if (!ended_) client_.take(stream_, Channel::kStdout, bytes);
                   },
                   [this](int error) { on_stdout_broken(error); }});
  // Nobody reads stderr: the command goes on, as it would with 2>/dev/null.
  err_.set_events({[this](std::uint32_t bytes) {
                     if (!ended_) client_.take(stream_, Channel::kStderr, bytes);
                   },
                   {}});
}

void Foreground::on_stdout_broken(int error) {
  if (error != EPIPE && error != ECONNRESET) result_.output_error = error;
  if (ended_) return;
  client_.signal(stream_, SIGPIPE, true);
  // Programs that ignore SIGPIPE do not see the closed pipe here, so they are not left running for nobody.
  pipe_timer_ = loop_.after(kPipeGrace, [this] {
    pipe_timer_.reset();
    if (!ended_) client_.signal(stream_, SIGKILL, true);
  });
}

void Foreground::start_input() {
  in_.start({[this](std::string_view bytes) { return ended_ ? bytes.size() : client_.write(stream_, bytes); },
             [this] {
               if (!ended_) client_.close_stdin(stream_);
             }});
}

void Foreground::on_signal(int number) {
  if (number == SIGCONT) {
    if (raw_) raw_->enter_again();
    return;
  }
  if (number == SIGWINCH) {
    const TerminalSize size = terminal_size();
    if (options_.tty && !ended_) client_.resize(stream_, size.rows, size.columns);
    return;
  }
  // A shell at a terminal ignores SIGTERM: passed on, nothing would come of it. Whoever ends a client that
  // holds a terminal means the client.
  if (options_.tty && (number == SIGTERM || number == SIGHUP)) insisted_ = kInsisted - 1;
  if (number == SIGINT || number == SIGTERM || (options_.tty && number == SIGHUP)) ++insisted_;
  if (insisted_ >= kInsisted) {
    result_.left_by_signal = number;
  } else if (!ended_) {
    const bool kill = insisted_ == 2;
    client_.signal(stream_, kill ? SIGKILL : number, kill);
  } else {
    result_.left_by_signal = number;  // Only output that nobody reads is left.
  }
}

Status Foreground::watch_signals() {
  DRUPE_ASSIGN(signals_, SignalWatch::create(
                             loop_, {SIGINT, SIGTERM, SIGHUP, SIGQUIT, SIGUSR1, SIGUSR2, SIGWINCH, SIGCONT},
                             [this](int number) { on_signal(number); }));
  return {};
}

bool Foreground::finished() const {
  return result_.left_by_signal != 0 || (ended_ && out_.empty() && err_.empty());
}

Result<ForegroundResult> Foreground::run(const OpenRequest& request) {
  DRUPE_TRY(watch_signals());
  DRUPE_ASSIGN(stream_, client_.open(request, handler()));
  prepare_output();
  if (options_.tty) raw_.emplace(STDIN_FILENO);
  if (options_.input) start_input();
  auto done = loop_.run_until([this] { return finished(); }, Deadline::max());
  in_.stop();
  if (raw_) raw_->restore();
  if (pipe_timer_) loop_.cancel(*pipe_timer_);
  if (!ended_) client_.reset(stream_, "the client left");
  if (!done) return std::unexpected(std::move(done).error());
  if (options_.capture) {
    result_.out = kept_out_.take();
    result_.err = kept_err_.take();
    result_.truncated = kept_out_.truncated() || kept_err_.truncated();
  }
  return std::move(result_);
}

}  // namespace

Result<ForegroundResult> run_foreground(EventLoop& loop, ShimClient& client, const OpenRequest& request,
                                        const ForegroundOptions& options) {
  return Foreground(loop, client, options).run(request);
}

Status await_end(Engine& engine, const std::string& id, const ForegroundResult& main) {
  if (!main.facts || main.left_by_signal != 0) return {};
  auto ended = engine.wait(id);
  if (!ended && ended.error().code != ErrorCode::kNotFound) return std::unexpected(std::move(ended).error());
  return {};
}

int exit_status(const ExitFacts& facts) {
  if (facts.timed_out) return 124;
  if (facts.signal > 0) return 128 + facts.signal;
  if (facts.exit_code >= 0 && facts.exit_code <= 255) return facts.exit_code;
  return 125;
}

int exit_status(const ForegroundResult& result) {
  if (result.left_by_signal != 0) return 128 + result.left_by_signal;
  if (result.output_error != 0) return 125;
  return result.facts ? exit_status(*result.facts) : 125;
}

std::string explain(const ForegroundResult& result) {
  if (result.error) return to_string(*result.error);
  if (result.output_error != 0)
    return std::string("The command was stopped: writing its output to stdout failed: ") +
           std::strerror(result.output_error);
  if (!result.facts) return {};
  const ExitFacts& facts = *result.facts;
  if (facts.error) return to_string(*facts.error);
  if (facts.timed_out) return "The command was killed: it had reached its --timeout";
  if (facts.oom_killed)
    return "The guest's kernel killed a process for lack of memory. Give the sandbox more with --memory";
  return {};
}

}  // namespace drupe::cli
