#include "api/service/build_log.h"

#include <algorithm>
#include <cerrno>

#include <fcntl.h>
#include <unistd.h>

#include "api/json/writer.h"
#include "api/service/ids.h"
#include "base/files.h"

namespace drupe::api {
namespace {

constexpr std::size_t kMostLine = 8192;
constexpr std::size_t kPart = 65536;

std::string path_of(const std::string& folder, std::string_view id) {
  return folder + "/" + std::string(id) + ".log";
}

}  // namespace

Result<BuildLog> BuildLog::create(const std::string& folder, std::string_view id) {
  DRUPE_TRY(make_dirs(folder));
  DRUPE_ASSIGN(UniqueFd file,
               open_at(AT_FDCWD, path_of(folder, id), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND));
  return BuildLog(std::move(file));
}

void BuildLog::add(std::string_view bytes) {
  open_line_.append(bytes);
  std::string_view rest = open_line_;
  while (true) {
    const auto end = rest.find('\n');
    if (end == std::string_view::npos && rest.size() < kMostLine) break;
    const std::size_t length = std::min({end, kMostLine, rest.size()});
    std::string_view line = rest.substr(0, length);
    rest.remove_prefix(length < rest.size() && rest[length] == '\n' ? length + 1 : length);
    // Of a progress bar only its last state is worth a line.
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (const auto back = line.rfind('\r'); back != std::string_view::npos) line.remove_prefix(back + 1);
    write_line(line);
  }
  open_line_ = std::string(rest);
}

void BuildLog::say(std::string_view line) {
  if (!open_line_.empty()) add("\n");
  write_line(line);
}

void BuildLog::write_line(std::string_view line) {
  if (written_ > kMostBuildLog) return;
  JsonWriter json;
  json.begin_object().field("ts", timestamp(now_ns()));
  json.field("line", written_ + line.size() > kMostBuildLog ? "[what follows is left out]" : line);
  written_ += line.size() + 64;
  // A full disk ends the build by itself; its log is no reason.
  static_cast<void>(write_all(file_.get(), json.end_object().take() + "\n"));
}

Result<BuildLogPart> read_build_log(const std::string& folder, std::string_view id, std::uint64_t from) {
  BuildLogPart part;
  part.end = from;
  auto file = open_at(AT_FDCWD, path_of(folder, id), O_RDONLY | O_NOFOLLOW);
  if (!file && file.error().sys_errno == ENOENT) return part;
  if (!file) return std::unexpected(std::move(file).error());
  std::string bytes(kPart, '\0');
  const ssize_t got = ::pread(file->get(), bytes.data(), bytes.size(), static_cast<off_t>(from));
  if (got < 0) return fail_sys("Reading a build's log failed", errno);
  bytes.resize(static_cast<std::size_t>(got));
  std::size_t begin = 0;
  while (true) {
    const auto end = bytes.find('\n', begin);
    if (end == std::string::npos) break;
    part.lines.push_back(bytes.substr(begin, end - begin));
    begin = end + 1;
  }
  part.end += begin;
  return part;
}

void remove_build_log(const std::string& folder, std::string_view id) {
  ::unlink(path_of(folder, id).c_str());
}

}  // namespace drupe::api
