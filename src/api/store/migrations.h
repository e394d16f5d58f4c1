// The stored format, version by version. A version that was ever released is never changed: another is added.
#pragma once

#include "api/store/sqlite.h"
#include "base/result.h"

namespace drupe::api {

/// Brings the database to the newest version, each step in a transaction of its own. kUnsupported when it was
/// written by a later program.
Status migrate(Database& database);
/// Number of the newest version.
[[nodiscard]] int newest_version();

}  // namespace drupe::api
