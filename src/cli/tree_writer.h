// Writes a local file or folder as a tar stream.
#pragma once

#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace drupe::cli {

using WriteBytes = std::function<Status(std::string_view)>;

struct TreeOptions {
  bool keep_owner = false;   ///< Else everything belongs to user and group 0.
  bool follow_link = false;  ///< Of `path` itself.
};

/// Writes `path` as an entry named `name` ("": only what is in the folder), with all that is below it, and
/// the end of the stream. Modes, times, symbolic links, hard links within the tree and holes are kept;
/// sockets and device nodes are left out. A file that shrinks meanwhile is filled up with zeros, as tar does.
Status write_tree(const std::string& path, const std::string& name, const TreeOptions& options,
                  const WriteBytes& write);

}  // namespace drupe::cli
