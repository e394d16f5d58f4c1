// Whether a user may have so much more.
#pragma once

#include <cstdint>
#include <string>

#include "api/store/quota_store.h"
#include "base/result.h"

namespace drupe::api {

/// What somebody has, or wants.
struct Usage {
  std::int64_t sandboxes = 0, vcpu = 0, mem_mib = 0, disk_mib = 0;
};

/// The user's own bounds over the server's, 0 for none.
[[nodiscard]] Usage bounds_of(const Quota& own, const Usage& defaults);
/// kPermission, with what is used up in words, when `used` and `more` together are beyond `bounds`. What is
/// not asked for more of is not looked at.
Status check_quota(const Usage& bounds, const Usage& used, const Usage& more);
/// Whether there is any bound: else nothing has to be counted.
[[nodiscard]] bool is_bounded(const Usage& bounds);

}  // namespace drupe::api
