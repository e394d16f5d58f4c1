// Small file operations that are easy to get wrong: whole reads with a bound, atomic replacement, full
// writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include <sys/types.h>

#include "base/result.h"
#include "base/unique_fd.h"

namespace drupe {

/// Directory handle to resolve relative names in; AT_FDCWD for the working directory.
using DirFd = int;

/// openat() with O_CLOEXEC added, EINTR retried. The path is named in the error.
Result<UniqueFd> open_at(DirFd dir, const std::string& path, int flags, mode_t mode = 0600);
/// Creates the directory (0700) if it is missing and opens it. Parents must exist.
Result<UniqueFd> make_dir_at(DirFd dir, const std::string& path);
/// mkdir -p with 0700.
Status make_dirs(const std::string& path);
/// Reads a whole regular file; more than `limit` bytes is kLimit.
Result<std::string> read_file(DirFd dir, const std::string& path, std::size_t limit);
Result<std::string> read_all(int fd, std::size_t limit);
/// Writes all bytes to `fd`, retrying short writes and EINTR.
Status write_all(int fd, std::string_view bytes);
Status pwrite_all(int fd, std::string_view bytes, std::uint64_t offset);
/// Copies `size` bytes at `offset` of `in` to the same place of `out`, in the kernel where both file systems
/// allow it. kIntegrity when `in` ends before.
Status copy_bytes(int in, int out, std::uint64_t offset, std::uint64_t size);

enum class Sync : bool { kNo, kYes };
/// Writes a temporary file beside `path` and renames it into place; with Sync::kYes the file is fsynced
/// before and the directory after the rename. A reader sees the old or the new content, never a mixture.
Status replace_file(DirFd dir, const std::string& path, std::string_view bytes, Sync sync,
                    mode_t mode = 0600);
/// Removes a tree without following links. A missing tree is success.
Status remove_tree(DirFd dir, const std::string& path);
/// Path of /proc/self/fd/N for interfaces that take only paths.
[[nodiscard]] std::string proc_fd_path(int fd);

}  // namespace drupe
