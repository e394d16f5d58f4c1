// For tests of the disk writer: makes layers, and reads what came out with libext2fs, as a kernel would see
// it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/tar_encode.h"
#include "base/unique_fd.h"
#include "image/disk.h"

namespace drupe::testing {

/// A layer under construction.
class Tar {
 public:
  Tar& add(TarEntry entry, std::string_view data = {});
  Tar& file(std::string name, std::string_view data = {}) {
    return add({.name = std::move(name), .mode = 0644}, data);
  }
  Tar& dir(std::string name) { return add({.name = std::move(name), .type = 'd', .mode = 0755}); }
  Tar& symlink(std::string name, std::string target) {
    return add({.name = std::move(name), .type = 'l', .mode = 0777, .link = std::move(target)});
  }
  Tar& hard_link(std::string name, std::string target) {
    return add({.name = std::move(name), .type = 'h', .link = std::move(target)});
  }
  [[nodiscard]] std::string bytes() const { return bytes_ + tar_end(); }

 private:
  std::string bytes_;
};

struct Stat {
  std::uint32_t mode = 0, uid = 0, gid = 0, links = 0;
  std::uint64_t size = 0, blocks = 0;  ///< Blocks of 512 bytes.
  std::int64_t mtime_ns = 0;
  std::uint32_t flags = 0, device = 0;
};

/// A disk image in an unnamed temporary file.
class Disk {
 public:
  Disk();
  /// Writes the layers; the disk has 128 MiB unless options say otherwise.
  Result<DiskSummary> write(const std::vector<std::string>& layers, DiskOptions options = small());
  static DiskOptions small();

  /// What e2fsck -fn says when it is not clean; empty when it is.
  [[nodiscard]] std::string check() const;
  /// False when there is no such path. Links are not followed.
  [[nodiscard]] bool exists(const std::string& path) const;
  [[nodiscard]] Stat stat(const std::string& path) const;
  /// Content of a file; target of a link.
  [[nodiscard]] std::string read(const std::string& path) const;
  [[nodiscard]] std::string xattr(const std::string& path, const std::string& name) const;
  /// Names in a directory without "." and "..", sorted.
  [[nodiscard]] std::vector<std::string> list(const std::string& path) const;
  /// SHA-256 of the whole file.
  [[nodiscard]] std::string digest() const;
  [[nodiscard]] int fd() const { return fd_.get(); }

 private:
  UniqueFd fd_;
};

}  // namespace drupe::testing
