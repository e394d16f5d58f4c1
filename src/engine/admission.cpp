#include "engine/admission.h"

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <optional>

#include <fcntl.h>
#include <sys/statvfs.h>

#include "engine/file_lock.h"
#include "shim/record.h"

namespace drupe {
namespace {

constexpr std::uint64_t kGrowthShare = 8;  ///< One part in eight of every promise is kept free.
constexpr std::uint64_t kProcessesMib = 32;
constexpr std::uint64_t kHostReserveMib = 256;

std::optional<std::uint64_t> to_number(std::string_view text) {
  std::uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end == text.data()) return std::nullopt;
  return value;
}

/// "MemAvailable:   123 kB" -> 123
std::optional<std::uint64_t> field_kib(std::string_view text, std::string_view name) {
  const auto at = text.find(name);
  if (at == std::string_view::npos) return std::nullopt;
  const auto digit = text.find_first_of("0123456789", at + name.size());
  return digit == std::string_view::npos ? std::nullopt : to_number(text.substr(digit));
}

std::optional<std::uint64_t> number_in(const std::string& path) {
  const auto text = read_file(AT_FDCWD, path, 64);
  return text ? to_number(*text) : std::nullopt;
}

void tighten(MemoryRoom& room, const std::string& limit_file, const std::string& usage_file) {
  const auto limit = number_in(limit_file);
  if (!limit) return;
  const std::uint64_t limit_mib = *limit >> 20;
  if (limit_mib >= room.total_mib) return;
  room.total_mib = limit_mib;
  const auto usage = number_in(usage_file);
  const std::uint64_t used_mib = usage ? std::min(*usage >> 20, limit_mib) : 0;
  // Page cache counts as use in a cgroup but is given up first, so half of the use is taken to be cache at
  // most.
  room.available_mib = std::min(room.available_mib, limit_mib - used_mib / 2);
}

std::string entry_path(const std::string& id, std::uint64_t mib) {
  return "promised/" + id + "." + std::to_string(mib);
}

}  // namespace

Result<MemoryRoom> memory_room() {
  DRUPE_ASSIGN(const std::string text, read_file(AT_FDCWD, "/proc/meminfo", 65536));
  const auto total = field_kib(text, "MemTotal:");
  const auto available = field_kib(text, "MemAvailable:");
  if (!total || !available)
    return fail(ErrorCode::kHost, "The kernel does not say how much memory is available");
  MemoryRoom room{*total >> 10, *available >> 10};
  tighten(room, "/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory.current");
  tighten(room, "/sys/fs/cgroup/memory/memory.limit_in_bytes", "/sys/fs/cgroup/memory/memory.usage_in_bytes");
  return room;
}

Status admit_memory(const MemoryRoom& room, const Promised& promised, std::uint64_t mib) {
  if (mib > room.total_mib)
    return fail(ErrorCode::kLimit,
                "A sandbox with " + std::to_string(mib) + " MiB does not fit this machine, which has " +
                    std::to_string(room.total_mib) + " MiB",
                "Ask for less with --memory.");
  const std::uint64_t kept =
      (promised.mib + mib) / kGrowthShare + (promised.sandboxes + 1) * kProcessesMib + kHostReserveMib;
  if (kept <= room.available_mib) return {};
  return fail(ErrorCode::kLimit,
              "There is not enough memory for one more sandbox: " + std::to_string(room.available_mib) +
                  " MiB are available and " + std::to_string(kept) + " MiB must stay free for the " +
                  std::to_string(promised.sandboxes + 1) + " sandboxes",
              "Remove or pause others (drupe ps), or ask for less with --memory.");
}

Status check_disk_room(const Home& home, std::uint64_t bytes) {
  struct statvfs found{};
  if (::fstatvfs(home.dir(), &found) != 0)
    return fail_sys("Asking for the free space of " + home.path() + " failed", errno);
  const std::uint64_t available = std::uint64_t{found.f_bavail} * found.f_frsize;
  if (available >= bytes && (found.f_files == 0 || found.f_favail >= 64)) return {};
  return fail(ErrorCode::kLimit,
              "There is not enough room on the disk of " + home.path() + ": " +
                  std::to_string(available >> 20) + " MiB are free and " + std::to_string(bytes >> 20) +
                  " MiB are needed",
              "Remove sandboxes (drupe rm), images (drupe rmi) or base snapshots (drupe prune).");
}

Result<Promised> promised_memory(const Home& home, bool exact) {
  DRUPE_ASSIGN(const auto entries, home.names_in("promised"));
  Promised sum;
  for (const std::string& entry : entries) {
    const auto dot = entry.find('.');
    const std::string id = entry.substr(0, dot);
    const auto mib =
        dot == std::string::npos ? std::nullopt : to_number(std::string_view(entry).substr(dot + 1));
    if (!is_sandbox_id(id) || !mib) continue;
    if (exact) {
      const auto alive = is_locked(home.dir(), Home::sandbox(id) + "/" + kLockFile);
      if (alive && !*alive) {
        ::unlinkat(home.dir(), ("promised/" + entry).c_str(), 0);
        continue;
      }
    }
    ++sum.sandboxes;
    sum.mib += std::min(*mib, std::uint64_t{1} << 30);
  }
  return sum;
}

Status promise_memory(const Home& home, const std::string& id, std::uint64_t mib) {
  DRUPE_ASSIGN(const MemoryRoom room, memory_room());
  DRUPE_TRY(open_at(home.dir(), entry_path(id, mib), O_WRONLY | O_CREAT, 0600));
  const auto others = [&](bool exact) -> Result<Promised> {
    DRUPE_ASSIGN(Promised sum, promised_memory(home, exact));
    sum.sandboxes -= std::min<std::uint64_t>(sum.sandboxes, 1);  // without our own entry
    sum.mib -= std::min(sum.mib, mib);
    return sum;
  };
  Status admitted;
  for (const bool exact : {false, true}) {
    const auto sum = others(exact);
    if (!sum)
      admitted = std::unexpected(sum.error());
    else
      admitted = admit_memory(room, *sum, mib);
    if (admitted) return admitted;
  }
  release_promise(home, id, mib);
  return admitted;
}

void release_promise(const Home& home, const std::string& id, std::uint64_t mib) {
  ::unlinkat(home.dir(), entry_path(id, mib).c_str(), 0);
}

}  // namespace drupe
