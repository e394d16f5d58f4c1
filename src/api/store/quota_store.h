// What each user may have, where it differs from what all may.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

namespace drupe::api {

/// Absent: the server's own value. 0: no bound.
struct Quota {
  std::optional<std::int64_t> sandboxes;      ///< That have not ended, paused ones included.
  std::optional<std::int64_t> vcpu, mem_mib;  ///< Of those that are not paused, together.
  std::optional<std::int64_t> disk_mib;       ///< Of all that have not ended, together.
};

/// Callable from any thread; a change is in force for the next call everywhere.
class QuotaStore {
 public:
  virtual ~QuotaStore() = default;
  virtual Result<Quota> quota_of(std::string_view user_id) = 0;
  virtual Status set_quota(std::string_view user_id, const Quota& quota) = 0;
};

/// Over the same file as the store, which has migrated it before.
Result<std::unique_ptr<QuotaStore>> open_sqlite_quotas(const std::string& path);

}  // namespace drupe::api
