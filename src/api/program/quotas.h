// `druped quota ...`
#pragma once

#include <string>
#include <vector>

#include "api/store/quota_store.h"
#include "api/store/store.h"
#include "base/result.h"

namespace drupe::api {

/// show USER, set USER NAME=VALUE...: what is printed. A running server goes by it with its next request.
Result<std::string> run_quota_command(Store& store, QuotaStore& quotas,
                                      const std::vector<std::string>& words);

}  // namespace drupe::api
