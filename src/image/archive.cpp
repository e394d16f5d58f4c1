#include "image/archive.h"

#include <array>
#include <cerrno>
#include <optional>

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/tar_decode.h"
#include "image/source.h"
#include "image/text.h"

namespace drupe {
namespace {

constexpr std::size_t kMaxMembers = 100'000;
constexpr int kMaxLinks = 8;

std::unexpected<Error> missing(const std::string& name) {
  return fail(ErrorCode::kNotFound, "The archive has no member " + shown(name),
              "It may be cut short: make it again.");
}

/// Without "./", "..", double and trailing slashes: names and link targets of an archive compare equal by
/// this.
std::string cleaned(const std::string& path) {
  std::vector<std::string> parts;
  std::size_t at = 0;
  while (at <= path.size()) {
    const std::size_t end = std::min(path.find('/', at), path.size());
    const std::string part = path.substr(at, end - at);
    if (part == ".." && !parts.empty())
      parts.pop_back();
    else if (!part.empty() && part != "." && part != "..")
      parts.push_back(part);
    at = end + 1;
  }
  std::string out;
  for (const std::string& part : parts) out += (out.empty() ? "" : "/") + part;
  return out;
}

class TarArchive : public Archive {
 public:
  explicit TarArchive(int fd) : fd_(fd) {}

  Status index(std::uint64_t offset) {
    struct stat info{};
    if (::fstat(fd_, &info) != 0) return fail_sys("Looking at the archive failed", errno);
    end_ = static_cast<std::uint64_t>(info.st_size);
    for (at_ = offset; at_ < end_;) {
      bool more = false;
      DRUPE_ASSIGN(more, index_one());
      if (!more) break;
      if (members_.size() + links_.size() > kMaxMembers)
        return fail(ErrorCode::kLimit, "The archive has more than 100000 members");
    }
    if (members_.empty()) return fail(ErrorCode::kIntegrity, "The archive is empty");
    return {};
  }

  Result<ArchiveMember> find(const std::string& name) override {
    std::string at = cleaned(name);
    // `docker save` of old stores a layer that images share once, and links to it.
    for (int hops = 0; hops < kMaxLinks; ++hops) {
      if (const auto member = members_.find(at); member != members_.end())
        return ArchiveMember{fd_, member->second.first, member->second.second};
      const auto link = links_.find(at);
      if (link == links_.end()) break;
      at = link->second;
    }
    return missing(name);
  }

 private:
  /// A new decoder for each entry: so the data can be stepped over instead of being read.
  Result<bool> index_one() {
    std::optional<TarEntry> entry;
    TarDecoder decoder({[&entry](const TarEntry& found) -> Status {
                          entry = found;
                          return {};
                        },
                        [](std::uint64_t, ByteView) -> Status { return {}; },
                        {}});
    std::array<std::uint8_t, kTarBlock> block{};
    while (!entry && !decoder.ended()) {
      if (at_ + block.size() > end_) {
        // Nothing, or an incomplete block, may follow the last entry; a header that is cut is noticed by what
        // it lacks.
        DRUPE_TRY(decoder.finish());
        return false;
      }
      FileRangeSource source(fd_, at_, block.size());
      for (std::size_t fill = 0; fill < block.size();) {
        DRUPE_ASSIGN(const std::size_t got, source.read(std::span(block).subspan(fill)));
        fill += got;
      }
      DRUPE_TRY(decoder.feed(block));
      at_ += block.size();
    }
    if (!entry) return false;
    const std::string name = cleaned(entry->name);
    if (entry->type == 'f') {
      if (entry->sparse)
        return fail(ErrorCode::kUnsupported, "The archive stores " + shown(entry->name) + " as a sparse file",
                    "Make it again without sparse files.");
      if (entry->size > end_ - at_)
        return fail(ErrorCode::kIntegrity, "The archive is cut short inside " + shown(entry->name),
                    "Make it or copy it again.");
      members_[name] = {at_, entry->size};
      at_ += entry->size + tar_padding(entry->size);
    } else if (entry->type == 'l') {
      links_[name] = cleaned(name.substr(0, name.rfind('/') == std::string::npos ? 0 : name.rfind('/') + 1) +
                             entry->link);
    } else if (entry->type == 'h') {
      links_[name] = cleaned(entry->link);
    }
    return true;
  }

  const int fd_;
  std::uint64_t at_ = 0, end_ = 0;
  std::map<std::string, std::pair<std::uint64_t, std::uint64_t>> members_;  ///< Offset and size.
  std::map<std::string, std::string> links_;
};

class FolderArchive : public Archive {
 public:
  explicit FolderArchive(UniqueFd folder) : folder_(std::move(folder)) {}

  Result<ArchiveMember> find(const std::string& name) override {
    if (name.find('\0') != std::string::npos) return missing(name);
    open_how how{};
    how.flags = O_RDONLY | O_CLOEXEC | O_NONBLOCK;
    how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS;
    UniqueFd fd(static_cast<int>(::syscall(SYS_openat2, folder_.get(), name.c_str(), &how, sizeof(how))));
    if (!fd.valid()) {
      if (errno == ENOENT) return missing(name);
      return fail_sys("Opening " + shown(name) + " failed", errno);
    }
    struct stat info{};
    if (::fstat(fd.get(), &info) != 0 || !S_ISREG(info.st_mode))
      return fail(ErrorCode::kIntegrity, shown(name) + " is not a regular file");
    files_.push_back(std::move(fd));
    return ArchiveMember{files_.back().get(), 0, static_cast<std::uint64_t>(info.st_size)};
  }

 private:
  UniqueFd folder_;
  std::vector<UniqueFd> files_;
};

}  // namespace

Result<std::string> Archive::read(const std::string& name, std::size_t limit) {
  DRUPE_ASSIGN(const ArchiveMember member, find(name));
  if (member.size > limit)
    return fail(ErrorCode::kLimit,
                "The archive's " + shown(name) + " is larger than " + std::to_string(limit) + " bytes");
  std::string text(member.size, '\0');
  FileRangeSource source(member.fd, member.offset, member.size);
  for (std::size_t fill = 0; fill < text.size();) {
    DRUPE_ASSIGN(const std::size_t got,
                 source.read({reinterpret_cast<std::uint8_t*>(text.data()) + fill, text.size() - fill}));
    if (got == 0) return fail(ErrorCode::kIntegrity, "The archive is cut short inside " + shown(name));
    fill += got;
  }
  return text;
}

Result<std::unique_ptr<Archive>> open_tar_archive(int fd, std::uint64_t offset) {
  auto archive = std::make_unique<TarArchive>(fd);
  DRUPE_TRY(archive->index(offset));
  return archive;
}

std::unique_ptr<Archive> open_folder_archive(UniqueFd folder) {
  return std::make_unique<FolderArchive>(std::move(folder));
}

}  // namespace drupe
