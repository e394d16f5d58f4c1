#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include <cpuid.h>
#include <elf.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>
#include <x86intrin.h>

#include "base/files.h"
#include "base/ids.h"
#include "hypervisor/qemu/command.h"
#include "hypervisor/qemu/qemu.h"

namespace drupe {
namespace {

constexpr std::size_t kHeadBytes = 64 * 1024;
constexpr std::size_t kMaxCpuInfo = 4U << 20;

// The linker's build id identifies a binary's content; it lies in the first pages (ELF note NT_GNU_BUILD_ID).
std::string build_id(const std::string& head) {
  Elf64_Ehdr header{};
  if (head.size() < sizeof header) return {};
  std::memcpy(&header, head.data(), sizeof header);
  if (std::memcmp(header.e_ident, ELFMAG, SELFMAG) != 0) return {};
  for (std::size_t i = 0; i < header.e_phnum; ++i) {
    Elf64_Phdr part{};
    const std::size_t at = header.e_phoff + i * sizeof part;
    if (header.e_phoff > head.size() || at + sizeof part > head.size()) return {};
    std::memcpy(&part, head.data() + at, sizeof part);
    if (part.p_type != PT_NOTE || part.p_offset > head.size() || part.p_filesz > head.size() - part.p_offset)
      continue;
    const std::string_view notes(head.data() + part.p_offset, part.p_filesz);
    // Note header (name size 4, size, type 3), then "GNU\0".
    const auto name = notes.find(std::string_view("GNU\0", 4));
    if (name == std::string_view::npos || name < sizeof(Elf64_Nhdr)) continue;
    Elf64_Nhdr note{};
    std::memcpy(&note, notes.data() + name - sizeof note, sizeof note);
    if (note.n_type == NT_GNU_BUILD_ID && note.n_descsz <= 64 && name + 4 + note.n_descsz <= notes.size())
      return to_hex(std::string(notes.substr(name + 4, note.n_descsz)));
  }
  return {};
}

Result<std::string> binary_identity(const std::string& program) {
  DRUPE_ASSIGN(const UniqueFd file, open_at(AT_FDCWD, program, O_RDONLY));
  std::string head(kHeadBytes, '\0');
  const ssize_t got = ::pread(file.get(), head.data(), head.size(), 0);
  if (got < 0) return fail_sys("Reading " + program + " failed", errno);
  head.resize(static_cast<std::size_t>(got));
  if (auto id = build_id(head); !id.empty()) return id;
  struct stat info{};
  if (::fstat(file.get(), &info) != 0) return fail_sys("Looking at " + program + " failed", errno);
  return std::to_string(info.st_size) + "-" + std::to_string(info.st_mtim.tv_sec);
}

// Model name and flags of the first processor: what `-cpu host` shows to a guest.
std::string cpu_identity() {
  const auto text = read_file(AT_FDCWD, "/proc/cpuinfo", kMaxCpuInfo);
  if (!text) return "unknown";
  std::string out;
  for (const char* key : {"model name", "flags", "microcode"}) {
    const auto at = text->find(key);
    if (at != std::string::npos) out += text->substr(at, text->find('\n', at) - at);
  }
  std::uint64_t hash = 14695981039346656037ULL;  // FNV-1a: an identity, not a defence
  for (const char c : out) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return std::to_string(hash);
}

std::uint64_t nanoseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC_RAW, &now);
  return static_cast<std::uint64_t>(now.tv_sec) * 1'000'000'000U + static_cast<std::uint64_t>(now.tv_nsec);
}

struct Sample {
  std::uint64_t ticks;
  std::uint64_t ns;
};

// The pair of readings that were closest together out of several: an interruption between them would spoil
// it.
Sample sample() {
  Sample best{};
  std::uint64_t best_width = ~0ULL;
  for (int i = 0; i < 16; ++i) {
    const std::uint64_t before = nanoseconds();
    const std::uint64_t ticks = __rdtsc();
    const std::uint64_t width = nanoseconds() - before;
    if (width >= best_width) continue;
    best_width = width;
    best = Sample{ticks, before + width / 2};
  }
  return best;
}

}  // namespace

std::string qemu_program() {
  const char* chosen = std::getenv("DRUPE_QEMU");
  return chosen != nullptr && *chosen != '\0' ? chosen : "/usr/bin/qemu-system-x86_64";
}

Result<std::string> qemu_state_key(const std::string& program, Accelerator accelerator) {
  DRUPE_ASSIGN(const std::string binary, binary_identity(program));
  std::string key = "qemu-" + binary + "-devices" + std::to_string(kQemuDeviceListVersion);
  key += accelerator == Accelerator::kKvm ? "-kvm-host-" + cpu_identity() : std::string("-tcg-") + kTcgCpu;
  return key;
}

std::uint64_t measure_tsc_khz() {
  const Sample first = sample();
  timespec pause{0, 20'000'000};
  ::nanosleep(&pause, nullptr);
  const Sample last = sample();
  const std::uint64_t ns = std::max<std::uint64_t>(last.ns - first.ns, 1);
  const auto khz = static_cast<std::uint64_t>(static_cast<double>(last.ticks - first.ticks) * 1e6 /
                                              static_cast<double>(ns));
  return (khz + 500) / 1000 * 1000;
}

}  // namespace drupe
