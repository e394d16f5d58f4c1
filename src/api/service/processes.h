// Managed processes: commands that run on when their client leaves, with output that can be read again.
#pragma once

#include <condition_variable>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "api/service/loop_thread.h"
#include "api/store/store.h"
#include "base/unique_fd.h"
#include "protocol/messages.h"
#include "shim/client.h"

namespace drupe::api {

/// Kept of each process's output.
inline constexpr std::size_t kKeptOutput = std::size_t{1} << 20;
/// Of one sandbox, those that have ended included: the oldest of these go.
inline constexpr std::size_t kMostProcesses = 64;

struct ProcessSpec {
  std::string cmd;  ///< As asked for; empty: a login shell.
  std::vector<std::string> args;
  std::vector<std::string> env;  ///< The sandbox's variables included.
  std::string cwd;
  bool pty = false;
  std::uint16_t rows = 24, columns = 80;
};

struct ProcessView {
  ProcessRow row;
  std::string state;  ///< starting, running, terminating, exited, failed
  std::uint64_t oldest_seq = 0, newest_seq = 0;
  std::size_t bytes = 0;
};

struct OutputFrame {
  std::uint64_t seq = 0;
  Channel channel = Channel::kStdout;
  std::string bytes;
};

/// The sandbox that a call is about: running, and the caller's.
struct ProcessTarget {
  std::string sandbox;
  UniqueFd directory;  ///< In the engine's home.
};

/// Calls from any thread; they block. All streams live on one thread of its own, which never does. Output is
/// taken as it comes and the oldest is dropped, so no process ever waits for a reader.
class Processes {
 public:
  static Result<std::unique_ptr<Processes>> start(Store& store);
  ~Processes();

  Result<ProcessView> create(const ProcessTarget& target, const ProcessSpec& spec);
  Result<std::vector<ProcessView>> list(const ProcessTarget& target);
  Result<ProcessView> get(const ProcessTarget& target, const std::string& id);
  /// Of what is written to it, in order; kInvalidState when its stdin is closed or it has ended.
  Result<std::uint64_t> input(const ProcessTarget& target, const std::string& id, std::string bytes);
  Status close_stdin(const ProcessTarget& target, const std::string& id);
  Status resize(const ProcessTarget& target, const std::string& id, std::uint16_t rows,
                std::uint16_t columns);
  Status signal(const ProcessTarget& target, const std::string& id, int number);
  /// SIGTERM to all of it, SIGKILL after `grace`; its view when it has ended.
  Result<ProcessView> end(const ProcessTarget& target, const std::string& id,
                          std::chrono::milliseconds grace);
  /// Waits until it has ended (`tree`: and all that it started); nothing when the deadline comes first.
  Result<std::optional<ProcessView>> wait(const ProcessTarget& target, const std::string& id, bool tree,
                                          Deadline deadline);

  /// What a reader gets next: output after `after`, or how it ended, or nothing for a while.
  struct Output {
    std::vector<OutputFrame> frames;
    std::optional<std::uint64_t> expired;  ///< Output was dropped: the oldest that is there.
    std::optional<ProcessView> ended;      ///< All has been read.
  };
  Result<Output> read(const ProcessTarget& target, const std::string& id, std::uint64_t after,
                      Deadline deadline);

  /// The sandbox is gone with all its processes.
  void forget(const std::string& sandbox);

 private:
  struct Process;
  struct Link;
  using Shared = std::shared_ptr<Process>;

  Processes(Store& store, std::unique_ptr<LoopThread> thread);
  /// Connects to the sandbox unless that is so, and takes up its processes again.
  Status ensure_linked(const ProcessTarget& target);
  Result<Shared> find(const ProcessTarget& target, const std::string& id);
  Result<std::vector<Shared>> known(const std::string& sandbox);
  [[nodiscard]] ProcessView view(const Process& process) const;  ///< Under mutex_.
  Status make_room(const std::string& sandbox);
  /// Asks the guest whether anything that it started is left.
  Status look_for_tree(const Shared& process);
  Status ask(const std::function<Status()>& call);

  // On the loop's thread.
  Status link(const std::string& sandbox, int directory);
  void open(const Shared& process, Link& link, const OpenRequest& request);
  void feed(const Shared& process);
  void on_data(Process& process, Channel channel, std::string_view bytes);
  void on_end(Process& process, const ExitFacts* facts, const Error* error);

  Store& store_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::map<std::string, std::map<std::string, Shared>> processes_;  ///< Under mutex_: by sandbox and id.
  std::map<std::string, std::unique_ptr<Link>> links_;              ///< The loop's thread only.
  std::unique_ptr<LoopThread> thread_;  ///< Last: nothing of the above may go before it.
};

}  // namespace drupe::api
