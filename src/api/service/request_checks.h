// Bounds of what a caller gives a sandbox.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "base/result.h"

namespace drupe::api {

/// Names that can be variables; at most 64, with values of 4096 bytes, 64 KiB in all.
Status check_envs(const std::map<std::string, std::string>& envs);
/// Lines of OpenSSH public keys, at most 64.
Status check_keys(const std::vector<std::string>& keys);
/// Adds those that are not known.
void add_keys(std::vector<std::string>& known, const std::vector<std::string>& keys);

}  // namespace drupe::api
