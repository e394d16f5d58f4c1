// What a template's build says: a file of JSON lines, read while it grows.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/unique_fd.h"

namespace drupe::api {

/// Most bytes of one log; what is over is left out, and that is said.
inline constexpr std::size_t kMostBuildLog = std::size_t{4} << 20;

/// Used by one thread at a time.
class BuildLog {
 public:
  /// Makes `<folder>/<id>.log` anew.
  static Result<BuildLog> create(const std::string& folder, std::string_view id);
  /// Adds `bytes` of output; lines are written when they are complete, or too long.
  void add(std::string_view bytes);
  /// Ends the line that is open and adds one of our own.
  void say(std::string_view line);

 private:
  explicit BuildLog(UniqueFd file) : file_(std::move(file)) {}
  void write_line(std::string_view line);

  UniqueFd file_;
  std::string open_line_;
  std::size_t written_ = 0;
};

struct BuildLogPart {
  std::vector<std::string> lines;  ///< Finished JSON objects {"ts","line"}.
  std::uint64_t end = 0;           ///< Where to go on.
};
/// The whole lines from byte `from` on, a few hundred at a time; nothing when there is no such log.
Result<BuildLogPart> read_build_log(const std::string& folder, std::string_view id, std::uint64_t from);
void remove_build_log(const std::string& folder, std::string_view id);

}  // namespace drupe::api
