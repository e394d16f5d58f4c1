// Who a command runs as: a "user[:group]" looked up in the image's own passwd and group files.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace drupe::agent {

struct UserIds {
  std::uint32_t uid = 0, gid = 0;
  std::vector<std::uint32_t> groups;  ///< Supplementary; none when a group was named.
  std::string name;                   ///< Empty when the passwd file does not know the uid.
  std::string home = "/";
};

/// `spec` is "", "name", "uid", "name:group", "uid:gid" and mixtures; "" is root. Numbers are decimal, below
/// 2^32-1. A number that the files do not know is taken as it is, with group 0. Files are the image's, hence
/// hostile: lines that do not parse are passed over.
Result<UserIds> find_user(std::string_view spec, std::string_view passwd, std::string_view group);

/// find_user() with the files of the root that the caller sees.
Result<UserIds> find_user_of_image(std::string_view spec);
/// Changes the calling process to the user, for good.
Status become(const UserIds& user);

}  // namespace drupe::agent
