// Walks of directory trees by descriptors, so that a directory that is moved meanwhile is no way out of the
// tree. Deep trees cost a level of recursion and a descriptor each, so depth is bounded.
#pragma once

#include <functional>
#include <string>

#include <sys/stat.h>

#include "base/result.h"

namespace drupe::agent {

inline constexpr int kMaxTreeDepth = 2000;

/// Calls `visit` for `path` itself and everything below, parents first, links not followed. An error of
/// `visit` ends it. Entries that vanish meanwhile are passed over.
Status each_in_tree(
    const std::string& path,
    const std::function<Status(int dir, const std::string& name, const struct stat& info)>& visit);
/// rm -r of a directory; a tree deeper than the bound is an error after what was removed already.
Status remove_whole_tree(const std::string& path);

/// Calls `use` for each name in the open directory `dir`, "." and ".." left out, until it fails.
Status each_name(int dir, const std::string& path, const std::function<Status(const std::string& name)>& use);

}  // namespace drupe::agent
