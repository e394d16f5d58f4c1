// The members of an image archive, be it a tar file or a folder. Nothing is unpacked: members are ranges of
// files.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/files.h"
#include "base/result.h"

namespace drupe {

/// A regular file's range; the archive owns the descriptor.
struct ArchiveMember {
  int fd = -1;
  std::uint64_t offset = 0, size = 0;
};

class Archive {
 public:
  Archive() = default;
  Archive(const Archive&) = delete;
  Archive& operator=(const Archive&) = delete;
  virtual ~Archive() = default;
  /// kNotFound for a name that the archive does not have; hostile names are harmless.
  virtual Result<ArchiveMember> find(const std::string& name) = 0;
  /// The content of a member of at most `limit` bytes.
  Result<std::string> read(const std::string& name, std::size_t limit);
};

/// Indexes the plain tar from `offset` of the regular file `fd`, which is borrowed. kIntegrity when it is
/// none.
Result<std::unique_ptr<Archive>> open_tar_archive(int fd, std::uint64_t offset);
/// A folder with the layout of an archive. Symbolic links in it are not followed.
[[nodiscard]] std::unique_ptr<Archive> open_folder_archive(UniqueFd folder);

}  // namespace drupe
