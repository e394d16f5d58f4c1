#include "agent/mounts.h"

#include <algorithm>
#include <cerrno>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

namespace drupe::agent {
namespace {

constexpr std::size_t kMaxMounts = 64;
constexpr std::size_t kMaxTable = 1024 * 1024;

std::string_view next_word(std::string_view& line) {
  const std::string_view word = line.substr(0, line.find(' '));
  line.remove_prefix(word.size() == line.size() ? word.size() : word.size() + 1);
  return word;
}

/// mountinfo writes space, tab, newline and backslash as \ooo.
std::string unescape(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size()) {
      out += static_cast<char>((text[i + 1] - '0') * 64 + (text[i + 2] - '0') * 8 + (text[i + 3] - '0'));
      i += 3;
    } else {
      out += text[i];
    }
  }
  return out;
}

}  // namespace

/// One line of mountinfo (proc(5)); false when it is no writable disk file system.
bool DiskMounts::parse(std::string_view line, Mount& mount) {
  next_word(line);  // id
  next_word(line);  // parent
  const std::string_view device = next_word(line);
  next_word(line);  // root
  const std::string_view path = next_word(line);
  for (std::string_view word = next_word(line); word != "-"; word = next_word(line))
    if (line.empty()) return false;
  const std::string_view type = next_word(line);
  const std::string_view source = next_word(line);
  if (!source.starts_with("/dev/") || type == "devtmpfs" || type.starts_with("fuse")) return false;
  if (line.find("rw") != 0) return false;
  const auto colon = device.find(':');
  if (colon == std::string_view::npos) return false;
  const auto major_number = static_cast<unsigned>(parse_number(device.substr(0, colon), 0));
  const auto minor_number = static_cast<unsigned>(parse_number(device.substr(colon + 1), 0));
  mount = {::makedev(major_number, minor_number), unescape(path)};
  return true;
}

Result<DiskMounts> DiskMounts::enter(const Work& work) {
  DiskMounts mounts;
  // Opened before entering: the agent's own /proc is not there afterwards.
  DRUPE_ASSIGN(mounts.table_,
               open_at(AT_FDCWD, "/proc/" + std::to_string(work.init_pid()) + "/mountinfo", O_RDONLY));
  struct stat root{};
  if (::fstat(work.root(), &root) != 0) return fail_sys("Looking at the root failed", errno);
  mounts.root_ = root.st_dev;
  DRUPE_TRY(work.enter());
  mounts.read_table();
  return mounts;
}

void DiskMounts::read_table() {
  mounts_.clear();
  if (::lseek(table_.get(), 0, SEEK_SET) != 0) return;
  const auto table = read_all(table_.get(), kMaxTable);
  std::string_view rest = table ? std::string_view(*table) : std::string_view();
  while (!rest.empty() && mounts_.size() < kMaxMounts) {
    const std::string_view line = rest.substr(0, rest.find('\n'));
    rest.remove_prefix(line.size() == rest.size() ? line.size() : line.size() + 1);
    Mount mount;
    if (!parse(line, mount) || mount.device == root_) continue;
    const bool seen =
        std::any_of(mounts_.begin(), mounts_.end(), [&](const Mount& m) { return m.device == mount.device; });
    if (!seen) mounts_.push_back(std::move(mount));
  }
}

std::vector<UniqueFd> DiskMounts::open_all() {
  // proc(5): a change of the table is an exceptional condition of the descriptor, until it has been polled.
  pollfd changed{table_.get(), POLLPRI, 0};
  if (::poll(&changed, 1, 0) > 0 && (changed.revents & (POLLPRI | POLLERR)) != 0) read_table();
  std::vector<UniqueFd> all;
  for (auto it = mounts_.rbegin(); it != mounts_.rend(); ++it) {
    auto fd = open_at(AT_FDCWD, it->path, O_RDONLY | O_NONBLOCK | O_NOCTTY);
    struct stat info{};
    if (fd && ::fstat(fd->get(), &info) == 0 && info.st_dev == it->device) all.push_back(*std::move(fd));
  }
  return all;
}

}  // namespace drupe::agent
