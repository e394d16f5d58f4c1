// Who did what: one JSON object a line, appended to a file in the home and never changed.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "base/result.h"
#include "base/unique_fd.h"

namespace drupe::api {

struct AuditEntry {
  std::string_view request_id;  ///< Empty: nobody asked; the server did it.
  std::string_view client;      ///< Numeric address; may be empty.
  std::string_view user_id, user;
  std::string_view by;      ///< "key", "token", "operator", "retention".
  std::string_view action;  ///< "POST /v1/sandboxes/:id/exec", or a word of this program.
  std::string_view object;  ///< What it was done to; a client's bytes, cut here.
  int status = 0;           ///< Of the answer; 0: none.
};

/// Callable from any thread. At most five files of `most_bytes` each: audit.log, and .1 to .4, which are
/// older.
class Audit {
 public:
  /// `most_bytes` 0: nothing is written.
  static Result<std::unique_ptr<Audit>> open(UniqueFd directory, std::uint64_t most_bytes);
  /// What cannot be written is said in the log.
  void write(const AuditEntry& entry);

 private:
  Audit(UniqueFd directory, std::uint64_t most_bytes)
      : directory_(std::move(directory)), most_bytes_(most_bytes) {}
  Status append(const std::string& line);
  Status open_file();
  void rotate();

  const UniqueFd directory_;
  const std::uint64_t most_bytes_;
  std::mutex mutex_;
  UniqueFd file_;             ///< Under mutex_.
  std::uint64_t length_ = 0;  ///< Under mutex_.
};

}  // namespace drupe::api
