// Ours: looking at files, searching them, and moving whole trees as tar.
#include <algorithm>
#include <array>

#include "api/json/writer.h"
#include "api/routes/call.h"
#include "api/routes/glob.h"
#include "api/service/guest_command.h"

namespace drupe::api {
namespace {

constexpr std::size_t kMostGlob = 256, kMostText = 1024;
/// Of a line that is searched and shown, and of a file that is searched.
constexpr std::size_t kMostLine = std::size_t{16} << 10;
constexpr std::uint64_t kMostFile = std::uint64_t{16} << 20;
constexpr std::size_t kMostMatches = 1000;
constexpr std::uint64_t kMostTar = std::uint64_t{8} << 30;

constexpr std::array<std::pair<char, std::string_view>, 7> kTypes{{{'f', "file"},
                                                                   {'d', "directory"},
                                                                   {'l', "link"},
                                                                   {'c', "character-device"},
                                                                   {'b', "block-device"},
                                                                   {'p', "fifo"},
                                                                   {'s', "socket"}}};

std::string stat_json(const StatResult& stat) {
  const auto* const type = std::ranges::find(kTypes, stat.type, &std::pair<char, std::string_view>::first);
  JsonWriter json;
  json.begin_object().field("name", stat.name);
  json.field("type", type == kTypes.end() ? std::string_view("other") : type->second);
  json.field("size", stat.size).field("allocated", stat.allocated).field("mode", stat.mode);
  json.field("uid", stat.uid).field("gid", stat.gid).field("mtime", timestamp(stat.mtime_ns));
  if (!stat.link_target.empty()) json.field("link_target", stat.link_target);
  return json.end_object().take();
}

Result<Sandboxes::Access> access_of(Call& call) {
  return call.services.sandboxes.access(call.caller.id, call.sandbox(), "accessing files");
}

/// A text of the query; empty when it is not given.
Answer<std::string> short_text(const RequestHead& head, std::string_view name, std::size_t most) {
  const std::string_view text = head.parameter(name).value_or("");
  if (text.size() > most)
    return refuse(400, "invalid_argument",
                  std::string(name) + " is longer than " + std::to_string(most) + " bytes");
  return std::string(text);
}

Answer<Data> stat(Call& call) {
  auto path = read_path(call.exchange.head());
  if (!path) return std::unexpected(path.error());
  API_ASSIGN(auto access, access_of(call));
  const auto found = stat_guest_file(access.engine->loop(), *access.client, *path);
  if (!found) return std::unexpected(file_error(found.error()));
  return stat_json(*found);
}

/// An answer of lines whose first part waits until something has come: until then a refusal is possible.
class Lines {
 public:
  explicit Lines(Exchange& exchange) : exchange_(exchange) {}
  Status line(std::string_view json) {
    out_.append(json).append("\n");
    return out_.size() < kFlushAt ? Status() : flush();
  }
  Status flush() {
    if (!exchange_.answered()) DRUPE_TRY(exchange_.begin("application/x-ndjson", std::nullopt));
    DRUPE_TRY(exchange_.write(out_));
    out_.clear();
    return {};
  }
  Status problem(std::string_view name, std::string_view what) {
    JsonWriter json;
    return line(json.begin_object().field("problem", what).field("name", name).end_object().take());
  }
  Status end(bool truncated) {
    JsonWriter json;
    DRUPE_TRY(line(json.begin_object().field("end", true).field("truncated", truncated).end_object().take()));
    DRUPE_TRY(flush());
    return exchange_.end();
  }

 private:
  static constexpr std::size_t kFlushAt = std::size_t{32} << 10;
  Exchange& exchange_;
  std::string out_;
};

using OnRecord = std::function<Status(RecordKind, ByteView)>;

/// Gives the guest's records to `on_record` until it says that it is `full`.
Answer<Data> serve_records(Call& call, const OpenRequest& request, Lines& lines, const bool& full,
                           const OnRecord& on_record) {
  API_ASSIGN(auto access, access_of(call));
  RecordParser parser;
  StreamSink sink;
  sink.on_data = [&](Channel, std::string_view bytes) -> Status {
    DRUPE_TRY(parser.feed(as_bytes(bytes), on_record));
    return full ? Status(fail(ErrorCode::kLimit, "enough")) : Status();
  };
  sink.on_quiet = [&] { return lines.flush(); };
  const auto facts =
      serve_stream(access.engine->loop(), *access.client, request, {}, call.exchange.fd(), sink);
  const bool good = full || (facts && !facts->error);
  if (!good && !call.exchange.answered())
    return std::unexpected(file_error(facts ? *facts->error : facts.error()));
  if (!good) {
    call.exchange.abort();
    return std::nullopt;
  }
  API_TRY(lines.end(full));
  return std::nullopt;
}

Status tell_problem(Lines& lines, ByteView body) {
  ByteReader reader(body);
  const std::string name = reader.text();
  return lines.problem(name, "cannot be read");
}

Answer<Data> list(Call& call) {
  const RequestHead& head = call.exchange.head();
  auto path = read_path(head);
  if (!path) return std::unexpected(path.error());
  const auto glob = short_text(head, "glob", kMostGlob);
  if (!glob) return std::unexpected(glob.error());
  OpenRequest request;
  request.kind = head.parameter("recursive") == "true" ? OpenKind::kWalk : OpenKind::kList;
  request.file.path = *path;
  Lines lines(call.exchange);
  constexpr bool kNeverFull = false;
  return serve_records(call, request, lines, kNeverFull, [&](RecordKind kind, ByteView body) -> Status {
    if (kind == RecordKind::kProblem) return tell_problem(lines, body);
    if (kind != RecordKind::kEntry) return {};
    ByteReader reader(body);
    const StatResult entry = StatResult::read(reader);
    if (!reader.ok()) return fail(ErrorCode::kGuest, "The guest's listing is malformed");
    return glob->empty() || matches_glob(*glob, entry.name) ? lines.line(stat_json(entry)) : Status();
  });
}

std::string folded(std::string_view text, bool fold) {
  std::string out(text);
  if (fold)
    for (char& c : out)
      if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  return out;
}

/// Looks for a text in the contents of a walk.
class Search {
 public:
  Search(Lines& lines, std::string glob, const std::string& text, bool fold)
      : lines_(lines), glob_(std::move(glob)), text_(folded(text, fold)), fold_(fold) {}

  Status on_record(RecordKind kind, ByteView body) {
    switch (kind) {
      case RecordKind::kProblem:
        return tell_problem(lines_, body);
      case RecordKind::kEntry: {
        ByteReader reader(body);
        name_ = StatResult::read(reader).name;
        line_.clear();
        number_ = 1;
        skipped_ = !reader.ok() || (!glob_.empty() && !matches_glob(glob_, name_));
        return {};
      }
      case RecordKind::kContent:
        return content(as_text(body));
      case RecordKind::kContentEnd:
        if (!skipped_ && !line_.empty()) DRUPE_TRY(look());
        return body.size() == 1 && as_text(body)[0] == 1 && !skipped_
                   ? lines_.problem(name_, "is longer than 16 MiB and was searched to there")
                   : Status();
      default:
        return {};
    }
  }
  [[nodiscard]] const bool& full() const { return full_; }

 private:
  Status content(std::string_view bytes) {
    // What has a zero byte is no text.
    skipped_ = skipped_ || bytes.find('\0') != std::string_view::npos;
    while (!skipped_ && !full_ && !bytes.empty()) {
      const auto end = bytes.find('\n');
      const std::string_view part = bytes.substr(0, end);
      line_.append(part.substr(0, kMostLine - std::min(line_.size(), kMostLine)));
      if (end == std::string_view::npos) return {};
      DRUPE_TRY(look());
      ++number_;
      bytes.remove_prefix(end + 1);
    }
    return {};
  }
  Status look() {
    const bool found = folded(line_, fold_).find(text_) != std::string::npos;
    if (found && found_ == kMostMatches) full_ = true;
    if (found && !full_) {
      ++found_;
      JsonWriter json;
      json.begin_object().field("name", name_).field("line", number_).field("text", line_);
      DRUPE_TRY(lines_.line(json.end_object().take()));
    }
    line_.clear();
    return {};
  }

  Lines& lines_;
  const std::string glob_, text_;
  const bool fold_;
  std::string name_, line_;
  std::uint64_t number_ = 1;
  std::size_t found_ = 0;
  bool skipped_ = false, full_ = false;
};

Answer<Data> grep(Call& call) {
  const RequestHead& head = call.exchange.head();
  auto path = read_path(head);
  if (!path) return std::unexpected(path.error());
  const auto glob = short_text(head, "glob", kMostGlob);
  if (!glob) return std::unexpected(glob.error());
  const auto text = short_text(head, "text", kMostText);
  if (!text) return std::unexpected(text.error());
  if (text->empty() || text->find('\n') != std::string::npos)
    return refuse(400, "invalid_argument", "text is needed, without a newline");
  OpenRequest request;
  request.kind = OpenKind::kWalk;
  request.file.path = *path;
  request.file.contents = true;
  request.file.length = kMostFile;
  Lines lines(call.exchange);
  Search search(lines, *glob, *text, head.parameter("ignore_case") == "true");
  return serve_records(call, request, lines, search.full(),
                       [&](RecordKind kind, ByteView body) { return search.on_record(kind, body); });
}

Answer<Data> tar_out(Call& call) {
  auto path = read_path(call.exchange.head());
  if (!path) return std::unexpected(path.error());
  API_ASSIGN(auto access, access_of(call));
  OpenRequest request;
  request.kind = OpenKind::kTarOut;
  request.file.path = *path;
  StreamSink sink;
  sink.on_data = [&](Channel, std::string_view bytes) -> Status {
    if (!call.exchange.answered()) DRUPE_TRY(call.exchange.begin("application/x-tar", std::nullopt));
    return call.exchange.write(bytes);
  };
  const auto facts =
      serve_stream(access.engine->loop(), *access.client, request, {}, call.exchange.fd(), sink);
  const bool good = facts && !facts->error;
  if (!call.exchange.answered())
    return std::unexpected(file_error(good    ? Error{ErrorCode::kGuest, "the tree gave nothing", "", 0}
                                      : facts ? *facts->error
                                              : facts.error()));
  if (good) API_TRY(call.exchange.end());
  // Broken off: the client must see that.
  if (!good) call.exchange.abort();
  return std::nullopt;
}

Answer<Data> tar_in(Call& call) {
  auto path = read_path(call.exchange.head());
  if (!path) return std::unexpected(path.error());
  API_ASSIGN(auto access, access_of(call));
  EventLoop& loop = access.engine->loop();
  OpenRequest directory;
  directory.kind = OpenKind::kMkdir;
  directory.file.path = *path;
  directory.file.parents = true;
  API_ASSIGN(const ExitFacts made, serve_stream(loop, *access.client, directory, {}, -1, {}));
  if (made.error) return std::unexpected(file_error(*made.error));
  OpenRequest request;
  request.kind = OpenKind::kTarIn;
  request.file.path = *path;
  std::uint64_t total = 0;
  bool over = false;
  const auto read = [&](std::span<char> into) -> Result<std::size_t> {
    DRUPE_ASSIGN(const std::size_t count, call.exchange.read_body(into));
    total += count;
    over = total > kMostTar;
    if (over) return fail(ErrorCode::kLimit, "too large");
    return count;
  };
  const auto facts = feed_guest(loop, *access.client, request, read);
  if (over) return refuse(413, "too_large", "a tree of more than 8 GiB cannot be uploaded");
  if (!facts && facts.error().code == ErrorCode::kCancelled) {
    call.exchange.abort();
    return std::nullopt;
  }
  if (facts && facts->error && facts->error->code == ErrorCode::kIntegrity)
    return refuse(400, "invalid_argument", facts->error->message);
  if (!facts || facts->error) return std::unexpected(file_error(facts ? *facts->error : facts.error()));
  JsonWriter json;
  return json.begin_object().field("bytes", total).field("path", *path).end_object().take();
}

}  // namespace

std::vector<Route> tree_routes() {
  return {
      {"GET", "/v1/sandboxes/:id/files/stat", stat},  {"GET", "/v1/sandboxes/:id/files/list", list},
      {"GET", "/v1/sandboxes/:id/files/grep", grep},  {"GET", "/v1/sandboxes/:id/files/tar", tar_out},
      {"PUT", "/v1/sandboxes/:id/files/tar", tar_in},
  };
}

}  // namespace drupe::api
