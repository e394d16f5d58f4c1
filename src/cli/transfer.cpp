#include "cli/transfer.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"
#include "cli/guest_stream.h"
#include "cli/tree_extract.h"
#include "cli/tree_writer.h"
#include "cli/values.h"

namespace drupe::cli {
namespace {

constexpr std::size_t kChunk = 256 * 1024;

/// A path as docker cp looks at it.
struct Path {
  std::string text;           ///< Without trailing slashes and "/.", "/" for the root.
  bool wants_folder = false;  ///< It ended with '/'.
  bool contents = false;      ///< It ended with "/.": what is in the folder.
  [[nodiscard]] std::string leaf() const { return text.substr(text.rfind('/') + 1); }
  [[nodiscard]] std::string parent() const {
    const auto slash = text.rfind('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : text.substr(0, slash);
  }
};

Path parse_path(std::string text) {
  Path path;
  if (text == "." || text.ends_with("/.")) {
    path.contents = true;
    path.wants_folder = true;
    text.pop_back();
    if (text.empty()) text = ".";
  }
  while (text.size() > 1 && text.ends_with('/')) {
    path.wants_folder = true;
    text.pop_back();
  }
  path.text = text;
  return path;
}

Path guest_path(const std::string& text) {
  return parse_path(text.starts_with('/') ? text : "/" + text);
}

/// Where a copy ends up: an existing folder, and the name there ("": the source's contents go straight into
/// the folder).
struct Landing {
  std::string folder;
  std::string name;
};

/// docker cp's rules. `there`: what is at `target` ('d' a folder, 0 nothing).
Result<Landing> land(const Path& target, char there, const Path& source, bool source_is_folder,
                     const std::string& source_leaf) {
  if (there == 'd') return Landing{target.text, source_is_folder && source.contents ? "" : source_leaf};
  if (there != 0) {
    if (source_is_folder)
      return fail(ErrorCode::kInvalidArgument, "A folder cannot be copied over the file " + target.text);
    if (target.wants_folder)
      return fail(ErrorCode::kInvalidArgument, target.text + " is a file, not a folder");
    return Landing{target.parent(), target.leaf()};
  }
  if (target.wants_folder && !source_is_folder)
    return fail(ErrorCode::kNotFound, "There is no folder " + target.text,
                "Make it first, or leave the '/' at the end out");
  return Landing{target.parent(), target.leaf()};
}

Result<std::string> guest_folder(EventLoop& loop, ShimClient& client, const std::string& path) {
  DRUPE_ASSIGN(const auto found, guest_stat(loop, client, path, true));
  if (!found)
    return fail(ErrorCode::kNotFound, "There is no folder " + path + " in the sandbox",
                "Make it first, e.g. with mkdir -p");
  if (found->type != 'd') return fail(ErrorCode::kInvalidArgument, path + " in the sandbox is not a folder");
  return path;
}

Result<std::unique_ptr<GuestStream>> open_tar(EventLoop& loop, ShimClient& client, OpenKind kind,
                                              const std::string& path) {
  OpenRequest request;
  request.kind = kind;
  request.file.path = path;
  return GuestStream::open(loop, client, request);
}

Status send_stdin(EventLoop& loop, ShimClient& client, const std::string& target) {
  DRUPE_ASSIGN(const std::string folder, guest_folder(loop, client, guest_path(target).text));
  DRUPE_ASSIGN(const auto stream, open_tar(loop, client, OpenKind::kTarIn, folder));
  FdSource input(STDIN_FILENO);
  std::vector<std::uint8_t> buffer(kChunk);
  while (true) {
    DRUPE_ASSIGN(const std::size_t count, input.read(buffer));
    if (count == 0) break;
    DRUPE_TRY(stream->write(as_text(ByteView(buffer).first(count))));
  }
  stream->close_stdin();
  DRUPE_TRY(stream->finish());
  return {};
}

Status receive_stdout(GuestStream& stream) {
  std::vector<std::uint8_t> buffer(kChunk);
  while (true) {
    DRUPE_ASSIGN(const std::size_t count, stream.read(buffer));
    if (count == 0) break;
    DRUPE_TRY(write_all(STDOUT_FILENO, as_text(ByteView(buffer).first(count))));
  }
  DRUPE_TRY(stream.finish());
  return {};
}

}  // namespace

Status copy_to_guest(EventLoop& loop, ShimClient& client, const std::string& source,
                     const std::string& target, const CopyOptions& options) {
  if (source == "-") return send_stdin(loop, client, target);
  const Path from = parse_path(source);
  const Path to = guest_path(target);
  struct stat status{};
  if (::fstatat(AT_FDCWD, from.text.c_str(), &status,
                options.follow_link || from.wants_folder ? 0 : AT_SYMLINK_NOFOLLOW) != 0)
    return fail_sys("Reading " + printable(source) + " failed", errno);
  const bool is_folder = S_ISDIR(status.st_mode);
  if (!is_folder && from.wants_folder)
    return fail(ErrorCode::kInvalidArgument, printable(source) + " is not a folder");
  if (!is_folder && !S_ISREG(status.st_mode) && !S_ISLNK(status.st_mode))
    return fail(ErrorCode::kInvalidArgument,
                printable(source) + " is neither a file nor a folder nor a link");

  // "." and ".." have no name of their own.
  std::string leaf = from.leaf();
  if (leaf == "." || leaf == ".." || leaf.empty()) leaf.clear();
  DRUPE_ASSIGN(const auto there, guest_stat(loop, client, to.text, true));
  DRUPE_ASSIGN(const Landing landing, land(to, there ? there->type : '\0', from, is_folder, leaf));
  DRUPE_ASSIGN(const std::string folder, guest_folder(loop, client, landing.folder));
  DRUPE_ASSIGN(const auto stream, open_tar(loop, client, OpenKind::kTarIn, folder));
  const TreeOptions tree{options.archive, options.follow_link || from.wants_folder};
  DRUPE_TRY(write_tree(from.text, landing.name, tree,
                       [&](std::string_view bytes) { return stream->write(bytes); }));
  stream->close_stdin();
  DRUPE_TRY(stream->finish());
  return {};
}

Status check_copy_source(const std::string& source) {
  struct stat status{};
  if (source == "-" || ::lstat(parse_path(source).text.c_str(), &status) == 0) return {};
  return fail_sys("Looking for " + printable(source) + " failed", errno);
}

Status check_copy_target(const std::string& target) {
  const Path to = parse_path(target);
  struct stat status{};
  if (target == "-" || ::stat(to.text.c_str(), &status) == 0) return {};
  const std::string folder = to.wants_folder ? to.text : to.parent();
  if (::stat(folder.c_str(), &status) == 0 && S_ISDIR(status.st_mode)) return {};
  return fail(ErrorCode::kNotFound, "There is no folder " + printable(folder) + " on this machine",
              "Make it first, e.g. with mkdir -p.");
}

Status copy_from_guest(EventLoop& loop, ShimClient& client, const std::string& source,
                       const std::string& target, const CopyOptions& options) {
  const Path from = guest_path(source);
  DRUPE_ASSIGN(const auto there,
               guest_stat(loop, client, from.text, options.follow_link || from.wants_folder));
  if (!there) return fail(ErrorCode::kNotFound, "There is no " + printable(from.text) + " in the sandbox");
  const bool is_folder = there->type == 'd';
  if (!is_folder && from.wants_folder)
    return fail(ErrorCode::kInvalidArgument, printable(source) + " in the sandbox is not a folder");
  OpenRequest request;
  request.kind = OpenKind::kTarOut;
  request.file.path = from.text;
  request.file.no_follow = !(options.follow_link || from.wants_folder);
  if (target == "-") {
    DRUPE_ASSIGN(const auto stream, GuestStream::open(loop, client, request));
    return receive_stdout(*stream);
  }
  const Path to = parse_path(target);
  struct stat status{};
  char host_type = 0;
  if (::stat(to.text.c_str(), &status) == 0) host_type = S_ISDIR(status.st_mode) ? 'd' : 'f';
  const std::string leaf = from.text == "/" ? "" : from.leaf();
  DRUPE_ASSIGN(const Landing landing, land(to, host_type, from, is_folder, leaf));
  auto folder = open_at(AT_FDCWD, landing.folder, O_RDONLY | O_DIRECTORY);
  if (!folder) return std::unexpected(std::move(folder).error().in("The target's folder"));
  DRUPE_ASSIGN(const auto stream, GuestStream::open(loop, client, request));
  ExtractOptions extract;
  extract.drop_first = from.text != "/";
  extract.prefix = landing.name;
  extract.keep_owner = options.archive;
  DRUPE_TRY(extract_tree(*stream, *folder, extract, [](std::string_view sentence) {
    (void)write_all(STDERR_FILENO, "drupe: note: " + printable(sentence) + "\n");
  }));
  DRUPE_TRY(stream->finish());
  return {};
}

}  // namespace drupe::cli
