// Landlock: what may be opened by path from now on. The structures are written out because headers of older
// kernels lack the later fields. Source: linux/Documentation/userspace-api/landlock.rst, ABI 1 to 7.
#include <cerrno>
#include <cstdint>
#include <cstring>

#include <fcntl.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/confine_steps.h"

namespace drupe::confine_steps {
namespace {

struct RulesetAttr {
  std::uint64_t handled_access_fs;
  std::uint64_t handled_access_net;
  std::uint64_t scoped;
};
struct [[gnu::packed]] PathBeneathAttr {
  std::uint64_t allowed_access;
  std::int32_t parent_fd;
};

constexpr std::uint32_t kCreateVersion = 1;  // landlock_create_ruleset flag: return the ABI
constexpr int kRulePathBeneath = 1;

constexpr std::uint64_t kExecute = 1U << 0;
constexpr std::uint64_t kWriteFile = 1U << 1;
constexpr std::uint64_t kReadFile = 1U << 2;
constexpr std::uint64_t kReadDir = 1U << 3;
constexpr std::uint64_t kRemoveDir = 1U << 4;
constexpr std::uint64_t kRemoveFile = 1U << 5;
constexpr std::uint64_t kMakeReg = 1U << 8;
constexpr std::uint64_t kMakeSock = 1U << 9;
constexpr std::uint64_t kRefer = 1U << 13;
constexpr std::uint64_t kTruncate = 1U << 14;
constexpr std::uint64_t kIoctlDev = 1U << 15;
constexpr std::uint64_t kBindTcp = 1U << 0;
constexpr std::uint64_t kConnectTcp = 1U << 1;
constexpr std::uint64_t kScopeAbstractSocket = 1U << 0;
constexpr std::uint64_t kScopeSignal = 1U << 1;
constexpr std::uint64_t kOfFile = kExecute | kWriteFile | kReadFile | kTruncate | kIoctlDev;

std::uint64_t handled_fs(long abi) {
  std::uint64_t all = (1U << 13) - 1;
  if (abi >= 2) all |= kRefer;
  if (abi >= 3) all |= kTruncate;
  if (abi >= 5) all |= kIoctlDev;
  return all;
}

std::uint64_t rights(bool write, bool execute) {
  std::uint64_t out = kReadFile | kReadDir;
  if (execute) out |= kExecute;
  if (write)
    // No links and folders: another process would follow what is put in a known file's place.
    out |= kWriteFile | kRemoveDir | kRemoveFile | kMakeReg | kMakeSock | kRefer | kTruncate;
  return out;
}

bool add_rule(int ruleset, int fd, std::uint64_t access) {
  struct stat info{};
  if (::fstat(fd, &info) != 0) return false;
  if (!S_ISDIR(info.st_mode)) access &= kOfFile;
  const PathBeneathAttr attr{access, fd};
  return ::syscall(SYS_landlock_add_rule, ruleset, kRulePathBeneath, &attr, 0) == 0;
}

}  // namespace

void apply_landlock(const Confinement& confinement, Missing& missing) {
  const long abi = ::syscall(SYS_landlock_create_ruleset, nullptr, 0, kCreateVersion);
  if (abi < 1) {
    missing.push_back("Landlock (the kernel does not offer it)");
    return;
  }
  const std::uint64_t handled = handled_fs(abi);
  RulesetAttr attr{handled, 0, 0};
  std::size_t size = sizeof(std::uint64_t);
  if (abi >= 4) {
    // TCP bind and connect; abstract unix sockets and signals to processes outside.
    attr.handled_access_net = confinement.only_network    ? kBindTcp
                              : confinement.allow_sockets ? 0
                                                          : kBindTcp | kConnectTcp;
    size = 2 * sizeof(std::uint64_t);
  }
  if (abi >= 6) {
    attr.scoped = confinement.allow_signals && !confinement.only_network
                      ? kScopeAbstractSocket
                      : kScopeAbstractSocket | kScopeSignal;
    size = sizeof(RulesetAttr);
  }
  const UniqueFd ruleset(static_cast<int>(::syscall(SYS_landlock_create_ruleset, &attr, size, 0)));
  if (!ruleset.valid()) {
    missing.push_back(std::string("Landlock (") + std::strerror(errno) + ")");
    return;
  }
  for (const auto& rule : confinement.paths) {
    const UniqueFd fd(::open(rule.path.c_str(), O_PATH | O_CLOEXEC));
    if (!fd.valid() || !add_rule(ruleset.get(), fd.get(), rights(rule.write, rule.execute) & handled))
      missing.push_back("Landlock rule for " + rule.path + " (" + std::strerror(errno) + ")");
  }
  for (const auto& rule : confinement.dirs) {
    const std::uint64_t access = rule.only_remove_dirs ? kRemoveDir : rights(rule.write, false);
    if (!add_rule(ruleset.get(), rule.fd, access & handled))
      missing.push_back(std::string("Landlock rule for a directory (") + std::strerror(errno) + ")");
  }
  if (::syscall(SYS_landlock_restrict_self, ruleset.get(), 0) != 0)
    missing.push_back(std::string("Landlock (") + std::strerror(errno) + ")");
}

}  // namespace drupe::confine_steps
