// `druped key ...`, and the first key.
#pragma once

#include <string>

#include "api/program/config.h"
#include "api/store/store.h"
#include "base/result.h"

namespace drupe::api {

/// Name of the user that the first key belongs to; an administrator.
inline constexpr const char* kFirstUser = "admin";

/// Makes a key of the user, whom it makes when there is none of that name. Gives the key's text, which is
/// nowhere else.
Result<std::string> create_key(Store& store, const std::string& user_name);
/// create, list, revoke: what is printed.
Result<std::string> run_key_command(Store& store, const CommandLine& line);

}  // namespace drupe::api
