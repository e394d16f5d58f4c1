#include "api/service/authorized_keys.h"

#include <algorithm>
#include <cerrno>

#include "api/service/guest_command.h"

namespace drupe::api {
namespace {

constexpr const char* kDirectory = "/root/.ssh";
constexpr const char* kFile = "/root/.ssh/authorized_keys";
constexpr std::size_t kMostBytes = std::size_t{1} << 20;

bool has(const std::vector<std::string>& keys, std::string_view line) {
  return std::ranges::any_of(keys, [&](const std::string& key) { return key == line; });
}

/// Empty when there is none.
Result<std::string> read_keys(EventLoop& loop, ShimClient& client) {
  OpenRequest request;
  request.kind = OpenKind::kReadFile;
  request.file.path = kFile;
  std::string content;
  StreamSink sink;
  sink.on_data = [&](Channel, std::string_view bytes) -> Status {
    if (content.size() + bytes.size() > kMostBytes)
      return fail(ErrorCode::kGuest, std::string(kFile) + " is longer than 1 MiB");
    content.append(bytes);
    return {};
  };
  DRUPE_ASSIGN(const ExitFacts facts, serve_stream(loop, client, request, {}, -1, sink));
  if (facts.error && facts.error->sys_errno != ENOENT) return std::unexpected(*facts.error);
  return content;
}

}  // namespace

std::optional<std::string> changed_keys(std::string_view content, const std::vector<std::string>& remove,
                                        const std::vector<std::string>& add) {
  std::string out;
  std::vector<std::string> there;
  std::string_view rest = content;
  while (!rest.empty()) {
    const auto end = rest.find('\n');
    const std::string_view line = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (has(remove, line) && !has(add, line)) continue;
    there.emplace_back(line);
    out.append(line).append("\n");
  }
  for (const std::string& key : add)
    if (!has(there, key)) out.append(key).append("\n");
  // A last line without its end is nothing that needs a change by itself.
  if (out == content || (!content.empty() && content.back() != '\n' && out == std::string(content) + "\n"))
    return std::nullopt;
  return out;
}

Status put_authorized_keys(EventLoop& loop, ShimClient& client, const std::vector<std::string>& remove,
                           const std::vector<std::string>& add) {
  DRUPE_ASSIGN(const std::string before, read_keys(loop, client));
  const auto after = changed_keys(before, remove, add);
  if (!after) return {};
  OpenRequest directory;
  directory.kind = OpenKind::kMkdir;
  directory.file.path = kDirectory;
  directory.file.mode = 0700;
  // One that is there keeps its mode.
  DRUPE_ASSIGN(const ExitFacts made, serve_stream(loop, client, directory, {}, -1, {}));
  if (made.error && made.error->sys_errno != EEXIST) return std::unexpected(*made.error);
  FileOptions file;
  file.path = kFile;
  file.mode = 0600;
  std::string_view rest = *after;
  const auto read = [&](std::span<char> into) -> Result<std::size_t> {
    const std::size_t part = rest.copy(into.data(), into.size());
    rest.remove_prefix(part);
    return part;
  };
  DRUPE_TRY(write_guest_file(loop, client, file, read));
  return {};
}

}  // namespace drupe::api
