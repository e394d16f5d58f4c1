#include "api/program/quotas.h"

#include <array>
#include <charconv>

namespace drupe::api {
namespace {

constexpr std::int64_t kMost = 1'000'000'000;

struct Part {
  std::string_view name;
  std::optional<std::int64_t> Quota::* member;
};
constexpr std::array kParts{Part{"sandboxes", &Quota::sandboxes}, Part{"vcpu", &Quota::vcpu},
                            Part{"mem_mib", &Quota::mem_mib}, Part{"disk_mib", &Quota::disk_mib}};

std::unexpected<Error> usage(const std::string& why) {
  return fail(ErrorCode::kInvalidArgument, why,
              "'druped quota set USER sandboxes=N vcpu=N mem_mib=N disk_mib=N': 0 is no bound, '-' the "
              "server's own value.");
}

Status apply(Quota& quota, const std::string& word) {
  const auto equals = word.find('=');
  for (const Part& part : kParts) {
    if (equals == std::string::npos || word.substr(0, equals) != part.name) continue;
    const std::string text = word.substr(equals + 1);
    std::int64_t value = 0;
    const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
    if (text == "-")
      (quota.*part.member).reset();
    else if (error != std::errc() || end != text.data() + text.size() || value < 0 || value > kMost)
      return usage("'" + word.substr(0, 80) + "' has no number from 0 to 1000000000");
    else
      quota.*part.member = value;
    return {};
  }
  return usage("'" + word.substr(0, 80) + "' is no part of a quota");
}

}  // namespace

Result<std::string> run_quota_command(Store& store, QuotaStore& quotas,
                                      const std::vector<std::string>& words) {
  const std::string what = words.size() > 1 ? words[1] : "";
  if ((what != "show" && what != "set") || words.size() < 3 || (what == "show" && words.size() != 3))
    return usage("quota needs one of: show USER, set USER NAME=VALUE...");
  DRUPE_ASSIGN(const auto user, store.find_user(words[2]));
  if (!user)
    return fail(ErrorCode::kNotFound, "There is no user " + words[2].substr(0, 80),
                "'druped key create --user NAME' makes one.");
  DRUPE_ASSIGN(Quota quota, quotas.quota_of(user->id));
  for (std::size_t i = 3; i < words.size(); ++i) DRUPE_TRY(apply(quota, words[i]));
  if (what == "set") DRUPE_TRY(quotas.set_quota(user->id, quota));
  std::string text;
  for (const Part& part : kParts) {
    const auto& value = quota.*part.member;
    text += std::string(text.empty() ? "" : " ") + std::string(part.name) + "=" +
            (value ? std::to_string(*value) : "-");
  }
  return text + "\n";
}

}  // namespace drupe::api
