#include "image/store_files.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <memory>

#include <dirent.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/ids.h"
#include "image/digest.h"

namespace drupe {
namespace {

constexpr std::array kFolders{"names", "disks", "blobs", "locks", "tmp"};
constexpr std::size_t kRecordLimit = std::size_t{8} << 20;

std::string name_path(const std::string& name) {
  std::string path = "names/" + name;
  std::replace(path.begin() + 6, path.end(), '/', '+');
  return path;
}

std::string disk_path(const std::string& id) {
  return "disks/" + id;
}

Status sync_dir(DirFd dir, const std::string& path) {
  DRUPE_ASSIGN(const UniqueFd fd, open_at(dir, path, O_RDONLY | O_DIRECTORY));
  if (::fsync(fd.get()) != 0) return fail_sys("Syncing the image store failed", errno);
  return {};
}

}  // namespace

Result<std::vector<std::string>> list_folder(DirFd dir, const std::string& path) {
  std::vector<std::string> names;
  auto fd = open_at(dir, path, O_RDONLY | O_DIRECTORY);
  if (!fd) {
    if (fd.error().code == ErrorCode::kNotFound) return names;
    return std::unexpected(std::move(fd).error());
  }
  const std::unique_ptr<DIR, decltype([](DIR* open) { ::closedir(open); })> entries(::fdopendir(fd->get()));
  if (entries == nullptr) return fail_sys("Reading the image store failed", errno);
  static_cast<void>(fd->release());  // the DIR owns it
  while (const dirent* entry = ::readdir(entries.get()))
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  std::sort(names.begin(), names.end());
  return names;
}

Result<StoreFiles> StoreFiles::open(const std::string& path) {
  DRUPE_ASSIGN(UniqueFd dir, make_dir_at(AT_FDCWD, path));
  return StoreFiles(std::move(dir), path);
}

Status StoreFiles::prepare() const {
  for (const char* folder : kFolders) {
    DRUPE_ASSIGN([[maybe_unused]] const UniqueFd made, make_dir_at(dir(), folder));
  }
  return {};
}

std::optional<std::string> StoreFiles::read_name(const std::string& name) const {
  std::array<char, 65> id{};
  const ssize_t size = ::readlinkat(dir(), name_path(name).c_str(), id.data(), id.size());
  if (size != 64) return std::nullopt;
  std::string text(id.data(), 64);
  if (!is_sha256_hex(text)) return std::nullopt;
  return text;
}

Status StoreFiles::write_name(const std::string& name, const std::string& id) const {
  const std::string path = name_path(name);
  const std::string temporary = "names/." + random_id();
  if (::symlinkat(id.c_str(), dir(), temporary.c_str()) != 0)
    return fail_sys("Giving the image its name failed", errno);
  if (::renameat(dir(), temporary.c_str(), dir(), path.c_str()) != 0) {
    const int error = errno;
    ::unlinkat(dir(), temporary.c_str(), 0);
    return fail_sys("Giving the image its name failed", error);
  }
  return {};
}

Status StoreFiles::remove_name(const std::string& name) const {
  if (::unlinkat(dir(), name_path(name).c_str(), 0) != 0 && errno != ENOENT)
    return fail_sys("Removing the image's name failed", errno);
  return {};
}

Result<std::vector<std::pair<std::string, std::string>>> StoreFiles::all_names() const {
  DRUPE_ASSIGN(const auto files, list_folder(dir(), "names"));
  std::vector<std::pair<std::string, std::string>> out;
  for (std::string name : files) {
    std::ranges::replace(name, '+', '/');
    if (auto id = read_name(name)) out.emplace_back(std::move(name), *std::move(id));
  }
  std::ranges::sort(out);
  return out;
}

Result<std::vector<std::string>> StoreFiles::all_ids() const {
  DRUPE_ASSIGN(auto ids, list_folder(dir(), "disks"));
  std::erase_if(ids, [](const std::string& id) { return !is_sha256_hex(id); });
  return ids;
}

bool StoreFiles::has_image(const std::string& id) const {
  return ::faccessat(dir(), disk_path(id).c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

Result<Image> StoreFiles::read_image(const std::string& id) const {
  auto text = read_file(dir(), disk_path(id) + "/image.json", kRecordLimit);
  if (!text) return std::unexpected(std::move(text).error().in("Reading the record of an image failed"));
  DRUPE_ASSIGN(Image image, decode_image_record(*text));
  image.id = id;
  image.disk_path = path_ + "/" + disk_path(id) + "/" + kDiskFile;
  return image;
}

Status StoreFiles::publish(Scratch scratch, const Image& image) const {
  if (has_image(image.id)) {
    discard(std::move(scratch));
    return {};
  }
  DRUPE_TRY(replace_file(scratch.dir.get(), "image.json", encode_image_record(image), Sync::kYes));
  const std::string place = disk_path(image.id);
  if (::renameat2(dir(), scratch.path.c_str(), dir(), place.c_str(), RENAME_NOREPLACE) != 0)
    return fail_sys("Putting the image into the store failed", errno);
  return sync_dir(dir(), "disks");
}

Result<std::string> StoreFiles::retire(const std::string& id) const {
  std::string place = "tmp/" + random_id();
  if (::renameat(dir(), disk_path(id).c_str(), dir(), place.c_str()) != 0)
    return fail_sys("Removing the image failed", errno);
  return place;
}

}  // namespace drupe
