#include "host_facts.h"

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <sstream>
#include <thread>

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "base/files.h"

namespace drupe::bench {
namespace {

namespace fs = std::filesystem;
constexpr std::size_t kMostProc = 1U << 20;

std::string proc_text(const std::string& path) {
  const auto text = read_file(AT_FDCWD, path, kMostProc);
  return text ? *text : std::string();
}

std::string field(const std::string& text, const std::string& name) {
  const auto at = text.find(name);
  if (at == std::string::npos) return {};
  const auto colon = text.find(':', at);
  const auto begin = text.find_first_not_of(" \t", colon + 1);
  return text.substr(begin, text.find('\n', begin) - begin);
}

std::uint64_t kib_field(const std::string& text, const std::string& name) {
  return std::strtoull(field(text, name).c_str(), nullptr, 10) * 1024;
}

}  // namespace

CpuMeter::CpuMeter() {
  const std::string root = "/sys/fs/cgroup/cpuacct";
  const std::string path = root + "/drupe-bench-" + std::to_string(::getpid());
  if (::mkdir(path.c_str(), 0755) != 0) return;
  const auto procs = open_at(AT_FDCWD, path + "/cgroup.procs", O_WRONLY);
  if (procs && write_all(procs->get(), "0"))
    path_ = path;
  else
    ::rmdir(path.c_str());
}

CpuMeter::~CpuMeter() {
  if (path_.empty()) return;
  const std::string parent = path_.substr(0, path_.rfind('/'));
  if (const auto procs = open_at(AT_FDCWD, parent + "/cgroup.procs", O_WRONLY)) {
    std::istringstream members(proc_text(path_ + "/cgroup.procs"));
    for (std::string pid; members >> pid;) static_cast<void>(write_all(procs->get(), pid));
  }
  ::rmdir(path_.c_str());
}

double CpuMeter::ms() const {
  if (path_.empty()) return 0;
  return std::strtod(proc_text(path_ + "/cpuacct.usage").c_str(), nullptr) / 1e6;
}

double load_average() {
  return std::strtod(proc_text("/proc/loadavg").c_str(), nullptr);
}

std::vector<std::pair<std::string, std::string>> machine_facts() {
  utsname names{};
  ::uname(&names);
  return {{"cpu", field(proc_text("/proc/cpuinfo"), "model name")},
          {"cpus", std::to_string(std::thread::hardware_concurrency())},
          {"kernel", names.release},
          {"memory", field(proc_text("/proc/meminfo"), "MemTotal")},
          {"load at start", std::to_string(load_average())},
          {"drupe", DRUPE_VERSION}};
}

Result<ProcessMemory> process_memory(int pid) {
  DRUPE_ASSIGN(const std::string text,
               read_file(AT_FDCWD, "/proc/" + std::to_string(pid) + "/smaps_rollup", kMostProc));
  ProcessMemory memory;
  memory.rss = kib_field(text, "\nRss");
  memory.pss = kib_field(text, "\nPss");
  memory.own = kib_field(text, "\nPrivate_Clean") + kib_field(text, "\nPrivate_Dirty");
  return memory;
}

Result<int> parent_of(int pid) {
  DRUPE_ASSIGN(const std::string text,
               read_file(AT_FDCWD, "/proc/" + std::to_string(pid) + "/status", kMostProc));
  return static_cast<int>(std::strtol(field(text, "\nPPid").c_str(), nullptr, 10));
}

Result<std::uint64_t> free_bytes(const std::string& path) {
  struct statvfs info{};
  if (::statvfs(path.c_str(), &info) != 0)
    return fail_sys("Looking at the room of " + path + " failed", errno);
  return static_cast<std::uint64_t>(info.f_bfree) * info.f_frsize;
}

std::size_t count_entries(const std::string& path) {
  std::error_code failed;
  std::size_t count = 0;
  for (auto entry = fs::directory_iterator(path, failed); !failed && entry != fs::directory_iterator();
       entry.increment(failed))
    ++count;
  return count;
}

std::size_t machine_processes() {
  std::size_t count = 0;
  std::error_code failed;
  for (const auto& entry : fs::directory_iterator("/proc", failed)) {
    const std::string name = proc_text(entry.path().string() + "/comm");
    if (name != "drupe-shim\n" && name.rfind("qemu-system-x86", 0) != 0) continue;
    if (field(proc_text(entry.path().string() + "/status"), "\nState").rfind("Z", 0) != 0) ++count;
  }
  return count;
}

}  // namespace drupe::bench
