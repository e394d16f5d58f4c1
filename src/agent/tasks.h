// Built-in operations that may block on the guest's file systems. Each runs in a child of its own inside the
// user's mount namespace, with the stream's bytes on descriptors 0 and 1. /proc there belongs to another PID
// namespace and is not used. Everything blocks, and an error is the operation's end.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include <sys/stat.h>

#include "base/result.h"
#include "protocol/messages.h"

namespace drupe::agent {

/// Runs one operation to its end. Returns the stream's result (an encoded StatResult, or nothing).
Result<std::string> run_task(OpenKind kind, const FileOptions& options);

// One function an operation; each in the file of its group.
Result<std::string> read_file_task(const FileOptions& options);
Result<std::string> write_file_task(const FileOptions& options);
Result<std::string> tar_in_task(const FileOptions& options);
Result<std::string> tar_out_task(const FileOptions& options);
Result<std::string> list_task(const FileOptions& options);
Result<std::string> walk_task(const FileOptions& options);
Result<std::string> watch_task(const FileOptions& options);
Result<std::string> tunnel_task(const FileOptions& options);
Result<std::string> trust_task();
Result<std::string> self_task();

// Shared by them.

/// "Opening /x failed: ..." with a code chosen for file operations: the caller's mistake, the guest's limits
/// or its rights.
[[nodiscard]] std::unexpected<Error> file_error(std::string_view doing, std::string_view path, int err);
[[nodiscard]] StatResult to_stat(std::string name, const struct stat& info);
[[nodiscard]] std::string encode_stat(const StatResult& stat);
/// Target of the link `name` in `dir`; empty when it is none.
[[nodiscard]] std::string read_link(int dir, const std::string& name);
/// mkdir -p for everything before the last slash of `path`.
Status make_parents(const std::string& path);

/// Buffers what goes to descriptor 1. A closed pipe ends the process: nobody wants the rest.
class Output {
 public:
  void write(std::string_view bytes);
  void record(RecordKind kind, std::string_view body);
  void flush();

 private:
  std::string buffer_;
};

}  // namespace drupe::agent
