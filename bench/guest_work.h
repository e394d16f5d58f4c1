// Sandboxes of the benchmark and what is done in them, through the engine's public interface.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench.h"
#include "shim/messages.h"

namespace drupe::bench {

/// A running sandbox without a main command, removed at the end.
class Guest {
 public:
  static Result<std::unique_ptr<Guest>> start(Bench& bench, std::uint64_t memory_mib = 512);
  /// Takes over a sandbox that runs or is paused.
  static std::unique_ptr<Guest> adopt(Bench& bench, std::string id);
  ~Guest();
  Guest(const Guest&) = delete;
  Guest& operator=(const Guest&) = delete;

  /// Connects again; after a resume.
  Status connect();
  /// Round trip of an empty request to the agent, milliseconds.
  Result<double> ping();
  Result<ExecResult> run(const std::vector<std::string>& argv);
  /// Milliseconds until the exit facts are there. A command that fails is an error.
  Result<double> timed(const std::vector<std::string>& argv);
  /// Milliseconds until the first byte of output.
  Result<double> first_output(const std::vector<std::string>& argv);
  /// Copies one of the benchmark's guest programs to /bench/NAME.
  Status install(const std::string& program);
  /// Writes a file of the guest.
  Status upload(const std::string& path, std::string_view bytes, std::uint32_t mode);
  /// Starts a command that goes on, and waits for its first output.
  Status begin(const std::vector<std::string>& argv);
  Result<ShimInfo> info();

  [[nodiscard]] const std::string& id() const { return id_; }
  [[nodiscard]] ShimClient& client() { return *client_; }
  void disconnect() { client_.reset(); }

 private:
  Guest(Bench& bench, std::string id) : bench_(bench), id_(std::move(id)) {}
  Bench& bench_;
  std::string id_;
  std::unique_ptr<ShimClient> client_;
};

/// The same on a client that is somebody else's.
Result<double> first_output(Bench& bench, ShimClient& client, const std::vector<std::string>& argv);
Result<double> ping(Bench& bench, ShimClient& client);

/// The parent of the pause and fork rows: 60 MiB of memory touched, 500 MiB of disk written and synced.
/// `writer`: "disk" (past the page cache) or "cached".
Result<std::unique_ptr<Guest>> start_burdened(Bench& bench, std::uint64_t memory_mib,
                                              const std::string& writer);

/// Runs a program of the host to its end and returns its output; another exit status than 0 is an error.
Result<std::string> run_program(const std::vector<std::string>& argv,
                                const std::vector<std::string>& env = {});
/// `drupe` with the benchmark's home.
Result<std::string> run_drupe(Bench& bench, std::vector<std::string> argv);
[[nodiscard]] std::vector<std::string> drupe_environment(const Bench& bench);
/// Waits until shims that are still tidying up have gone, so that a sample does not pay for the one before.
void settle(Bench& bench, std::size_t sandboxes);
[[nodiscard]] std::size_t count_sandboxes(const Bench& bench);

}  // namespace drupe::bench
