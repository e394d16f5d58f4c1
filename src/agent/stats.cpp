// Counters and the process list.
#include <algorithm>
#include <cstring>
#include <ctime>

#include <dirent.h>
#include <fcntl.h>
#include <sys/statvfs.h>
#include <unistd.h>

#include "agent/server.h"

namespace drupe::agent {
namespace {

constexpr std::size_t kMaxCommand = 4096;
constexpr std::size_t kMaxListed = 1000;
constexpr std::uint64_t kTickNs = 10'000'000;  // USER_HZ is 100 for every program
constexpr std::uint64_t kPage = 4096;
constexpr int kMaxDepth = 8;

std::uint64_t clock_ns(clockid_t clock) {
  timespec now{};
  ::clock_gettime(clock, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000 + static_cast<std::uint64_t>(now.tv_nsec);
}

std::uint64_t number_in(const char* path) {
  std::string text = slurp(AT_FDCWD, path);
  while (!text.empty() && text.back() == '\n') text.pop_back();
  return parse_number(text, 0);
}

/// The last word of the line that begins with `key`.
std::string_view last_word(std::string_view text, std::string_view key) {
  const auto at = text.find(key);
  if (at == std::string_view::npos) return {};
  std::string_view line = text.substr(at, text.find('\n', at) - at);
  const auto space = line.find_last_of(" \t");
  return space == std::string_view::npos ? std::string_view() : line.substr(space + 1);
}

std::string_view field(std::string_view text, int index) {
  for (; index > 0 && !text.empty(); --index) {
    const auto space = text.find(' ');
    text.remove_prefix(space == std::string_view::npos ? text.size() : space + 1);
  }
  return text.substr(0, text.find_first_of(" \n"));
}

std::uint32_t uid_of(std::string_view status) {
  const auto at = status.find("\nUid:\t");
  if (at == std::string_view::npos) return 0;
  std::string_view rest = status.substr(at + 6);
  return static_cast<std::uint32_t>(parse_number(rest.substr(0, rest.find('\t')), 0));
}

bool read_process(const std::string& pid, GuestProcess& process) {
  const std::string directory = "/proc/" + pid + "/";
  const std::string stat = slurp(AT_FDCWD, directory + "stat");
  const std::string status = slurp(AT_FDCWD, directory + "status");
  const auto name_end = stat.rfind(") ");
  if (name_end == std::string::npos || status.empty()) return false;
  // Fields by proc(5), counted from the one after the name: state 0, utime 11, stime 12, rss 21.
  const std::string_view rest = std::string_view(stat).substr(name_end + 2);
  process.state = rest.empty() ? '?' : rest[0];
  process.cpu_ns = (parse_number(field(rest, 11), 0) + parse_number(field(rest, 12), 0)) * kTickNs;
  process.rss_bytes = parse_number(field(rest, 21), 0) * kPage;
  process.pid = static_cast<std::int32_t>(parse_number(last_word(status, "NSpid:"), 0));
  process.uid = uid_of(status);
  process.parent =
      static_cast<std::int32_t>(value_of(status, "PPid"));  // the agent's number; translated afterwards
  std::string command = slurp(AT_FDCWD, directory + "cmdline");
  if (command.size() > kMaxCommand) command.resize(kMaxCommand);
  while (!command.empty() && command.back() == '\0') command.pop_back();
  std::replace(command.begin(), command.end(), '\0', ' ');
  const auto name_begin = stat.find('(');
  if (command.empty() && name_begin != std::string::npos)
    command = "[" + stat.substr(name_begin + 1, name_end - name_begin - 1) + "]";
  process.command = std::move(command);
  return true;
}

struct Listing {
  ProcessList list;
  std::map<std::int32_t, std::int32_t> inner;  ///< The agent's pid to the one that user work sees.
  std::size_t bytes = 64;
};

void list_cgroup(const std::string& path, const std::string& exec_id, int depth, Listing& listing) {
  const std::string pids = slurp(AT_FDCWD, path + "/cgroup.procs");
  std::string_view rest = pids;
  while (!rest.empty()) {
    const std::string line(rest.substr(0, rest.find('\n')));
    rest.remove_prefix(line.size() == rest.size() ? line.size() : line.size() + 1);
    GuestProcess process;
    if (!read_process(line, process)) continue;
    process.exec_id = exec_id;
    listing.inner.emplace(static_cast<std::int32_t>(parse_number(line, 0)), process.pid);
    listing.bytes += process.command.size() + process.exec_id.size() + 64;
    if (listing.bytes > kMaxPayload || listing.list.processes.size() >= kMaxListed) {
      listing.list.truncated = true;
      return;
    }
    listing.list.processes.push_back(std::move(process));
  }
  if (depth >= kMaxDepth) return;
  DIR* directory = ::opendir(path.c_str());
  if (directory == nullptr) return;
  while (const dirent* entry = ::readdir(directory)) {
    if (entry->d_type == DT_DIR && entry->d_name[0] != '.')
      list_cgroup(path + "/" + entry->d_name, exec_id, depth + 1, listing);
  }
  ::closedir(directory);
}

}  // namespace

GuestStats collect_stats(const Work& work) {
  GuestStats stats;
  const std::string memory = slurp(AT_FDCWD, "/proc/meminfo");
  stats.memory_total = value_of(memory, "MemTotal") * 1024;
  stats.memory_available = value_of(memory, "MemAvailable") * 1024;
  stats.memory_user = number_in("/cg/work/memory.current");
  stats.cpu_user_ns = value_of(slurp(AT_FDCWD, "/cg/work/cpu.stat"), "usage_usec") * 1000;
  stats.oom_kills = value_of(slurp(AT_FDCWD, "/cg/work/memory.events"), "oom_kill");
  stats.processes = static_cast<std::uint32_t>(number_in("/cg/work/pids.current"));
  struct statvfs disk{};
  if (::fstatvfs(work.root(), &disk) == 0) {
    stats.disk_total = static_cast<std::uint64_t>(disk.f_blocks) * disk.f_frsize;
    stats.disk_free = static_cast<std::uint64_t>(disk.f_bavail) * disk.f_frsize;
  }
  stats.uptime_ns = clock_ns(CLOCK_BOOTTIME);
  stats.realtime_ns = clock_ns(CLOCK_REALTIME);
  return stats;
}

ProcessList collect_processes(const std::map<std::string, std::string>& execs, const std::string& hidden) {
  Listing listing;
  DIR* directory = ::opendir("/cg/work");
  if (directory == nullptr) return listing.list;
  while (const dirent* entry = ::readdir(directory)) {
    const std::string name = entry->d_name;
    if (entry->d_type != DT_DIR || name[0] == '.' || name == "tasks" || name == hidden) continue;
    const auto exec = execs.find(name);
    list_cgroup("/cg/work/" + name, exec == execs.end() ? std::string() : exec->second, 0, listing);
  }
  ::closedir(directory);
  for (auto& process : listing.list.processes) {
    const auto parent = listing.inner.find(process.parent);
    process.parent = parent == listing.inner.end() ? 0 : parent->second;
  }
  std::sort(listing.list.processes.begin(), listing.list.processes.end(),
            [](const GuestProcess& a, const GuestProcess& b) { return a.pid < b.pid; });
  return listing.list;
}

}  // namespace drupe::agent
