#include "shim/usage.h"

#include <cinttypes>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <unistd.h>

#include "base/files.h"

namespace drupe {
namespace {

// Enough for a hypervisor's few hundred mappings; the file is the kernel's, only its length depends on the
// guest.
constexpr std::size_t kMaxProcFile = 4 * 1024 * 1024;

std::string read_proc(const UniqueFd& fd) {
  std::string text;
  if (!fd.valid() || ::lseek(fd.get(), 0, SEEK_SET) != 0) return text;
  char chunk[16384];
  while (text.size() < kMaxProcFile) {
    const ssize_t got = ::read(fd.get(), chunk, sizeof chunk);
    if (got <= 0) break;
    text.append(chunk, static_cast<std::size_t>(got));
  }
  return text;
}

UniqueFd open_proc(const std::string& path) {
  auto opened = open_at(AT_FDCWD, path, O_RDONLY);
  return opened ? std::move(*opened) : UniqueFd();
}

template <class F>
void for_each_line(std::string_view text, const F& call) {
  while (!text.empty()) {
    const std::size_t end = text.find('\n');
    call(std::string(text.substr(0, end)));
    text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  }
}

// Adds up "Private_*:  N kB" of mappings, those as large as the guest's memory (several, where saved pages
// lie over it, are told by their files' names) apart from the rest.
void add_up(const std::string& smaps, std::uint64_t ram_bytes, std::uint64_t& other, std::uint64_t& guest) {
  std::uint64_t ram_begin = 0;
  std::uint64_t ram_end = 0;
  bool in_guest = false;
  // The guest's memory is one stretch of address space; saved pages are mapped over parts of it, so it is
  // found by the run of adjoining mappings that is as long as the memory.
  std::uint64_t run_begin = 0;
  std::uint64_t run_end = 0;
  const auto parse = [](const std::string& line, std::uint64_t& begin, std::uint64_t& end) {
    return std::sscanf(line.c_str(), "%" SCNx64 "-%" SCNx64 " ", &begin, &end) == 2;
  };
  for_each_line(smaps, [&](const std::string& line) {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    if (!parse(line, begin, end)) return;
    if (begin != run_end) run_begin = begin;
    run_end = end;
    if (run_end - run_begin >= ram_bytes && ram_end == 0) {
      ram_end = run_end;
      ram_begin = run_end - ram_bytes;
    }
  });
  for_each_line(smaps, [&](const std::string& line) {
    std::uint64_t begin = 0;
    std::uint64_t end = 0;
    if (parse(line, begin, end)) in_guest = begin >= ram_begin && end <= ram_end;
    std::uint64_t kib = 0;
    if (std::sscanf(line.c_str(), "Private_Clean: %" SCNu64, &kib) != 1 &&
        std::sscanf(line.c_str(), "Private_Dirty: %" SCNu64, &kib) != 1)
      return;
    // Clean pages of the guest are the base's, in the page cache.
    if (in_guest && line.compare(0, 13, "Private_Dirty") != 0) return;
    (in_guest ? guest : other) += kib * 1024;
  });
}

}  // namespace

void Usage::open(std::uint64_t guest_ram_bytes) {
  own_rollup_ = open_proc("/proc/self/smaps_rollup");
  vmstat_ = open_proc("/proc/vmstat");
  guest_ram_bytes_ = guest_ram_bytes;
  oom_at_open_ = oom_counter();
}

void Usage::follow(int smaps_fd, int stat_fd) {
  earlier_cpu_ns_ += hypervisor_cpu_ns();
  smaps_ = UniqueFd(::fcntl(smaps_fd, F_DUPFD_CLOEXEC, 0));
  stat_ = UniqueFd(::fcntl(stat_fd, F_DUPFD_CLOEXEC, 0));
}

UsageNumbers Usage::read() const {
  UsageNumbers numbers;
  add_up(read_proc(smaps_), guest_ram_bytes_, numbers.hypervisor_private_bytes, numbers.guest_private_bytes);
  std::uint64_t none = 0;
  add_up(read_proc(own_rollup_), ~0ULL, numbers.shim_private_bytes, none);
  numbers.cpu_ns = earlier_cpu_ns_ + hypervisor_cpu_ns();
  return numbers;
}

std::uint64_t Usage::hypervisor_cpu_ns() const {
  // proc(5): utime and stime are fields 14 and 15, counted after the name, which is in parentheses.
  const std::string stat = read_proc(stat_);
  const std::size_t name_end = stat.rfind(')');
  unsigned long user = 0;
  unsigned long system = 0;
  if (name_end == std::string::npos ||
      std::sscanf(stat.c_str() + name_end + 1, " %*c %*d %*d %*d %*d %*d %*u %*u %*u %*u %*u %lu %lu", &user,
                  &system) != 2)
    return 0;
  return (user + system) * (1'000'000'000ULL / static_cast<unsigned long>(::sysconf(_SC_CLK_TCK)));
}

std::uint64_t Usage::oom_counter() const {
  std::uint64_t count = 0;
  for_each_line(read_proc(vmstat_), [&](const std::string& line) {
    if (line.compare(0, 9, "oom_kill ") == 0) count = std::strtoull(line.c_str() + 9, nullptr, 10);
  });
  return count;
}

std::uint64_t Usage::oom_kills() const {
  return oom_counter() - oom_at_open_;
}

}  // namespace drupe
