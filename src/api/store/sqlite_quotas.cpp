// Quotas in SQLite.
#include <mutex>

#include "api/store/quota_store.h"
#include "api/store/sqlite.h"

namespace drupe::api {
namespace {

class SqliteQuotas final : public QuotaStore {
 public:
  explicit SqliteQuotas(std::unique_ptr<Database> database) : database_(std::move(database)) {}

  Result<Quota> quota_of(std::string_view user_id) override {
    const std::scoped_lock lock(mutex_);
    DRUPE_ASSIGN(
        Statement find,
        database_->prepare("SELECT sandboxes, vcpu, mem_mib, disk_mib FROM quotas WHERE user_id = ?"));
    find.bind(user_id);
    DRUPE_ASSIGN(const bool found, find.step());
    if (!found) return Quota();
    return Quota{find.maybe_integer(0), find.maybe_integer(1), find.maybe_integer(2), find.maybe_integer(3)};
  }

  Status set_quota(std::string_view user_id, const Quota& quota) override {
    const std::scoped_lock lock(mutex_);
    DRUPE_ASSIGN(Statement set, database_->prepare("INSERT OR REPLACE INTO quotas (user_id, sandboxes, vcpu, "
                                                   "mem_mib, disk_mib) VALUES (?, ?, ?, ?, ?)"));
    return set.bind(user_id)
        .bind_optional(quota.sandboxes)
        .bind_optional(quota.vcpu)
        .bind_optional(quota.mem_mib)
        .bind_optional(quota.disk_mib)
        .run();
  }

 private:
  std::mutex mutex_;
  std::unique_ptr<Database> database_;  ///< Under mutex_.
};

}  // namespace

Result<std::unique_ptr<QuotaStore>> open_sqlite_quotas(const std::string& path) {
  DRUPE_ASSIGN(auto database, Database::open(path));
  return std::make_unique<SqliteQuotas>(std::move(database));
}

}  // namespace drupe::api
