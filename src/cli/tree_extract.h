// Unpacks a tar stream that a guest made into a folder on the host, following nothing that the stream (or
// anyone) put there.
#pragma once

#include <functional>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"
#include "image/source.h"

namespace drupe::cli {

struct ExtractOptions {
  bool drop_first =
      true;  ///< Drop the first path component of every entry: the name that the sandbox has for the whole.
  std::string prefix;       ///< Put in front of what is left; empty: nothing.
  bool keep_owner = false;  ///< Set user and group; needs privilege.
};

/// Unpacks into the folder `target`. Rules, each with a test:
///  - names with ".." or with a leading '/' are refused, and so is everything whose parent is not a true
///  folder: a link in the way
///    (also one that was there before) ends the copy with kGuest. Parents are resolved beneath `target` by
///    the kernel.
///  - a file replaces what has its name, never writes into it; a folder that is there is kept.
///  - hard links only to files of the same stream; device nodes are left out; set-user-id and set-group-id
///  bits are dropped.
///  - times and permission bits are kept; folders get theirs at the end.
/// `on_skip` is told what was left out and why.
Status extract_tree(ByteSource& tar, const UniqueFd& target, const ExtractOptions& options,
                    const std::function<void(std::string_view)>& on_skip);

}  // namespace drupe::cli
