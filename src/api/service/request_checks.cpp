#include "api/service/request_checks.h"

#include <algorithm>

namespace drupe::api {
namespace {

constexpr std::size_t kMostEnvs = 64, kMostEnvValue = 4096, kMostEnvBytes = 64 * 1024;
constexpr std::size_t kMostKeys = 64, kMostKeyBytes = 16 * 1024;

}  // namespace

Status check_envs(const std::map<std::string, std::string>& envs) {
  if (envs.size() > kMostEnvs) return fail(ErrorCode::kInvalidArgument, "envs has more than 64 entries");
  std::size_t total = 0;
  for (const auto& [name, value] : envs) {
    const auto word = [](char c) {
      return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
    };
    if (name.empty() || (name.front() >= '0' && name.front() <= '9') || !std::ranges::all_of(name, word))
      return fail(ErrorCode::kInvalidArgument,
                  "envs has a name that is none: letters, digits and '_' make one");
    if (value.size() > kMostEnvValue)
      return fail(ErrorCode::kInvalidArgument, "the value of envs." + name + " is longer than 4096 bytes");
    if (value.find('\0') != std::string::npos)
      return fail(ErrorCode::kInvalidArgument, "the value of envs." + name + " has a zero byte");
    total += name.size() + value.size();
  }
  if (total > kMostEnvBytes) return fail(ErrorCode::kInvalidArgument, "envs is longer than 64 KiB");
  return {};
}

Status check_keys(const std::vector<std::string>& keys) {
  if (keys.size() > kMostKeys) return fail(ErrorCode::kInvalidArgument, "there are more than 64 SSH keys");
  for (const std::string& key : keys) {
    const auto space = key.find(' ');
    const bool kind = key.starts_with("ssh-") || key.starts_with("ecdsa-") || key.starts_with("sk-");
    const bool line = std::ranges::none_of(key, [](char c) { return static_cast<unsigned char>(c) < 0x20; });
    if (!kind || !line || space == std::string::npos || key.size() > kMostKeyBytes ||
        key.substr(space + 1).find_first_not_of(' ') == std::string::npos)
      return fail(ErrorCode::kInvalidArgument, "ssh_pubkeys has a line that is no OpenSSH public key");
  }
  return {};
}

void add_keys(std::vector<std::string>& known, const std::vector<std::string>& keys) {
  for (const std::string& key : keys)
    if (std::ranges::find(known, key) == known.end()) known.push_back(key);
}

}  // namespace drupe::api
