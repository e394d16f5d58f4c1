#include "api/service/quota.h"

#include <array>
#include <string_view>

namespace drupe::api {
namespace {

struct Part {
  std::string_view unit;
  std::int64_t Usage::* of_usage;
  std::optional<std::int64_t> Quota::* of_quota;
};
constexpr std::array kParts{
    Part{"sandboxes", &Usage::sandboxes, &Quota::sandboxes},
    Part{"vCPUs of running sandboxes", &Usage::vcpu, &Quota::vcpu},
    Part{"MiB of running sandboxes' memory", &Usage::mem_mib, &Quota::mem_mib},
    Part{"MiB of disk", &Usage::disk_mib, &Quota::disk_mib},
};

}  // namespace

Usage bounds_of(const Quota& own, const Usage& defaults) {
  Usage bounds;
  for (const Part& part : kParts)
    bounds.*part.of_usage = (own.*part.of_quota).value_or(defaults.*part.of_usage);
  return bounds;
}

Status check_quota(const Usage& bounds, const Usage& used, const Usage& more) {
  for (const Part& part : kParts) {
    const std::int64_t bound = bounds.*part.of_usage;
    const std::int64_t have = used.*part.of_usage;
    const std::int64_t want = more.*part.of_usage;
    if (bound == 0 || want == 0 || have + want <= bound) continue;
    return fail(ErrorCode::kPermission, "not allowed: the quota is " + std::to_string(bound) + " " +
                                            std::string(part.unit) + ", " + std::to_string(have) +
                                            " are in use and this needs " + std::to_string(want) + " more");
  }
  return {};
}

bool is_bounded(const Usage& bounds) {
  for (const Part& part : kParts)
    if (bounds.*part.of_usage != 0) return true;
  return false;
}

}  // namespace drupe::api
