// What the parts of the ext4 writer share. Not for others: it pulls in libext2fs.
#pragma once

#include <string_view>

extern "C" {
// The library's headers convert between signed and unsigned.
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wconversion"
#pragma GCC diagnostic ignored "-Wsign-conversion"
#include <et/com_err.h>
#include <ext2fs/ext2fs.h>
#pragma GCC diagnostic pop
}

#include "base/result.h"
#include "image/disk_space.h"
#include "image/tree.h"

namespace drupe {

/// ext2fs error as ours: no room is kLimit, all else kHost.
[[nodiscard]] std::unexpected<Error> fail_ext2(std::string_view what, errcode_t code);

/// Fills blocks of one directory whose inodes are all numbered and writes them; sets its size and blocks.
/// Large ones get a hash index; true if so.
Result<bool> write_ext4_directory(ext2_filsys fs, DiskSpace& space, Inode& dir, std::uint32_t parent);

/// Writes the inode of anything but a directory's or link's content, with its attributes.
Status write_ext4_inode(ext2_filsys fs, const Inode& inode, bool indexed);

/// Name in a directory entry for the type of an inode: EXT2_FT_*.
[[nodiscard]] int ext4_file_type(char type);

}  // namespace drupe
