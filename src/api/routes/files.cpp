// Files: E20 upload, E21 download.
#include "api/json/writer.h"
#include "api/routes/call.h"
#include "api/service/guest_command.h"

namespace drupe::api {
namespace {

constexpr std::uint64_t kMostUpload = std::uint64_t{500} << 20;
}  // namespace

Answer<std::string> read_path(const RequestHead& head) {
  constexpr std::size_t kLongestPath = 4095;
  const auto path = head.parameter("path");
  if (!path || path->empty()) return refuse(400, "invalid_path", "path is needed");
  if (!path->starts_with('/')) return refuse(400, "invalid_path", "path must be absolute");
  if (path->find('\0') != std::string_view::npos) return refuse(400, "invalid_path", "path has a zero byte");
  if (path->size() > kLongestPath) return refuse(400, "invalid_path", "path is longer than 4095 bytes");
  return std::string(*path);
}

namespace {

Answer<Data> too_large() {
  return refuse(413, "too_large", "a file of more than 500 MiB cannot be uploaded");
}

Answer<Data> upload(Call& call) {
  auto path = read_path(call.exchange.head());
  if (!path) return std::unexpected(path.error());
  if (path->ends_with('/')) return refuse(400, "is_a_directory", "path is a directory");
  if (call.exchange.head().content_length.value_or(0) > kMostUpload) return too_large();
  API_ASSIGN(auto access, call.services.sandboxes.access(call.caller.id, call.sandbox(), "accessing files"));
  FileOptions file;
  file.path = *path;
  file.parents = true;
  std::uint64_t total = 0;
  bool over = false;
  const auto read = [&](std::span<char> into) -> Result<std::size_t> {
    DRUPE_ASSIGN(const std::size_t count, call.exchange.read_body(into));
    total += count;
    over = total > kMostUpload;
    if (over) return fail(ErrorCode::kLimit, "too large");
    return count;
  };
  const auto written = write_guest_file(access.engine->loop(), *access.client, file, read);
  if (over) return too_large();
  if (!written && written.error().code == ErrorCode::kCancelled) {
    call.exchange.abort();
    return std::nullopt;
  }
  if (!written) return std::unexpected(file_error(written.error()));
  JsonWriter json;
  return json.begin_object().field("bytes", total).field("path", *path).end_object().take();
}

Answer<Data> download(Call& call) {
  auto path = read_path(call.exchange.head());
  if (!path) return std::unexpected(path.error());
  API_ASSIGN(auto access, call.services.sandboxes.access(call.caller.id, call.sandbox(), "accessing files"));
  EventLoop& loop = access.engine->loop();
  const auto found = stat_guest_file(loop, *access.client, *path);
  if (!found) return std::unexpected(file_error(found.error()));
  if (found->type == 'd') return refuse(400, "is_a_directory", "path is a directory");
  if (found->type != 'f') return refuse(400, "not_a_file", "path is no regular file");
  OpenRequest request;
  request.kind = OpenKind::kReadFile;
  request.file.path = *path;
  request.file.length = found->size;
  std::uint64_t sent = 0;
  StreamSink sink;
  sink.on_data = [&](Channel /*channel*/, std::string_view bytes) -> Status {
    // A file whose size is said to be 0 may have content all the same: those of /proc do.
    if (!call.exchange.answered())
      DRUPE_TRY(call.exchange.begin("application/octet-stream",
                                    found->size == 0 ? std::nullopt : std::optional(found->size)));
    sent += bytes.size();
    return call.exchange.write(bytes);
  };
  const auto facts = serve_stream(loop, *access.client, request, {}, call.exchange.fd(), sink);
  const bool good = facts && !facts->error;
  if (!call.exchange.answered()) {
    if (!good) return std::unexpected(file_error(facts ? *facts->error : facts.error()));
    Response empty;
    empty.content_type = "application/octet-stream";
    API_TRY(call.exchange.send(empty));
    return std::nullopt;
  }
  if (good && found->size == 0) API_TRY(call.exchange.end());
  // Shorter than it was said to be, or broken off: the client must see that.
  if (!good || (found->size != 0 && sent != found->size)) call.exchange.abort();
  return std::nullopt;
}

}  // namespace

std::vector<Route> file_routes() {
  return {{"PUT", "/v1/sandboxes/:id/files", upload}, {"GET", "/v1/sandboxes/:id/files", download}};
}

}  // namespace drupe::api
