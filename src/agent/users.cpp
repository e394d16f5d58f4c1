#include "agent/users.h"

#include <array>
#include <cerrno>
#include <optional>

#include <fcntl.h>
#include <grp.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/files.h"

namespace drupe::agent {
namespace {

constexpr std::size_t kMaxGroups = 1024;
constexpr std::size_t kMaxAccounts = 4 * 1024 * 1024;

std::optional<std::uint32_t> parse_id(std::string_view text) {
  if (text.empty() || text.size() > 10) return std::nullopt;
  std::uint64_t value = 0;
  for (const char c : text) {
    if (c < '0' || c > '9') return std::nullopt;
    value = value * 10 + static_cast<std::uint64_t>(c - '0');
  }
  if (value >= 0xffffffff) return std::nullopt;
  return static_cast<std::uint32_t>(value);
}

/// Calls `use` with the fields of each line that has at least `N`; stops when it returns true. Lines that end
/// with `passed_over` are.
template <std::size_t N, class Use>
void each_line(std::string_view text, const Use& use, char passed_over = '\n') {
  while (!text.empty()) {
    std::string_view line = text.substr(0, text.find('\n'));
    text.remove_prefix(line.size() == text.size() ? line.size() : line.size() + 1);
    if (line.ends_with(passed_over)) continue;
    std::array<std::string_view, N> fields;
    std::size_t count = 0;
    for (; count < N; ++count) {
      const auto colon = line.find(':');
      fields[count] = line.substr(0, colon);
      if (colon == std::string_view::npos) {
        ++count;
        break;
      }
      line.remove_prefix(colon + 1);
    }
    if (count == N && use(fields)) return;
  }
}

bool lists(std::string_view members, std::string_view name) {
  while (!members.empty()) {
    const std::string_view one = members.substr(0, members.find(','));
    if (one == name) return true;
    members.remove_prefix(one.size() == members.size() ? one.size() : one.size() + 1);
  }
  return false;
}

std::optional<std::uint32_t> find_group(std::string_view name, std::string_view group) {
  std::optional<std::uint32_t> found;
  each_line<3>(group, [&](const auto& fields) {
    if (fields[0] == name) found = parse_id(fields[2]);
    return found.has_value();
  });
  return found ? found : parse_id(name);
}

}  // namespace

Result<UserIds> find_user(std::string_view spec, std::string_view passwd, std::string_view group) {
  const auto colon = spec.find(':');
  const std::string_view user = spec.substr(0, colon);
  const bool with_group = colon != std::string_view::npos;
  const std::string_view group_name = with_group ? spec.substr(colon + 1) : std::string_view();
  const auto number = spec.empty() ? std::optional<std::uint32_t>(0) : parse_id(user);
  UserIds ids;
  bool known = false;
  each_line<6>(passwd, [&](const auto& fields) {
    const auto uid = parse_id(fields[2]);
    const auto gid = parse_id(fields[3]);
    if (!uid || !gid || !(fields[0] == user || uid == number)) return false;
    ids = UserIds{*uid, *gid, {}, std::string(fields[0]), fields[5].empty() ? "/" : std::string(fields[5])};
    return known = true;
  });
  if (!known && !number)
    return fail(ErrorCode::kNotFound,
                "The user \"" + std::string(user) + "\" is not in the image's /etc/passwd",
                "Name a user of the image, or a numeric id");
  if (!known) ids.uid = *number;
  if (!known && ids.uid == 0) ids.home = "/root";
  if (with_group) {
    const auto gid = find_group(group_name, group);
    if (!gid)
      return fail(ErrorCode::kNotFound,
                  "The group \"" + std::string(group_name) + "\" is not in the image's /etc/group",
                  "Name a group of the image, or a numeric id");
    ids.gid = *gid;
    return ids;
  }
  if (!ids.name.empty()) {
    each_line<4>(
        group,
        [&](const auto& fields) {
          if (!lists(fields[3], ids.name)) return false;
          const auto gid = parse_id(fields[2]);
          if (gid && *gid != ids.gid) ids.groups.push_back(*gid);
          return ids.groups.size() >= kMaxGroups;
        },
        ':');  // most groups have no members
  }
  return ids;
}

namespace {

/// A missing file is empty, and a FIFO or device in its place is not read.
std::string account_file(const char* path) {
  auto fd = open_at(AT_FDCWD, path, O_RDONLY | O_NONBLOCK);
  struct stat info{};
  if (!fd || ::fstat(fd->get(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
  auto bytes = read_all(fd->get(), kMaxAccounts);
  return bytes ? *std::move(bytes) : std::string();
}

}  // namespace

Result<UserIds> find_user_of_image(std::string_view spec) {
  return find_user(spec, account_file("/etc/passwd"), account_file("/etc/group"));
}

Status become(const UserIds& user) {
  std::vector<gid_t> groups(user.groups.begin(), user.groups.end());
  if (user.groups.empty()) groups.push_back(user.gid);
  if (::setgroups(groups.size(), groups.data()) != 0 || ::setresgid(user.gid, user.gid, user.gid) != 0 ||
      ::setresuid(user.uid, user.uid, user.uid) != 0)
    return fail_sys("Changing to the user " + std::to_string(user.uid) + " failed", errno);
  return {};
}

}  // namespace drupe::agent
