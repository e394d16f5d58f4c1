#include "engine/host.h"

#include <algorithm>
#include <cstdlib>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/confine.h"
#include "base/spawn.h"
#include "hypervisor/kvm_probe.h"
#include "hypervisor/qemu/qemu.h"

namespace drupe {
namespace {

constexpr const char* kHostCache = "cache/host";
constexpr const char* kKvmDevice = "/dev/kvm";
constexpr std::chrono::milliseconds kKvmProbeLimit{1000};
constexpr int kVersionWaitMs = 10'000;
constexpr std::uint64_t kTscParts = 1000;  ///< One part in a thousand.

/// What the facts below were found for: another boot, program or device gives another text.
std::string circumstances(const std::string& program) {
  ByteWriter writer;
  writer.number<std::uint32_t>(1);
  writer.text(read_file(AT_FDCWD, "/proc/sys/kernel/random/boot_id", 64).value_or("unknown"));
  for (const std::string& path : {program, std::string(kKvmDevice), std::string("/proc/self/ns/user")}) {
    struct stat found{};
    const bool there = ::stat(path.c_str(), &found) == 0;
    writer.text(path)
        .flag(there)
        .number(found.st_dev)
        .number(found.st_ino)
        .number(found.st_rdev)
        .number(found.st_mode);
    writer.number(found.st_uid).number(found.st_gid);
    if (path == program) writer.number(found.st_size).number(found.st_mtim.tv_sec);
  }
  const char* forced = std::getenv("DRUPE_ACCELERATOR");
  writer.text(forced == nullptr ? "" : forced).number(::geteuid());
  return writer.take();
}

std::string encode(const Host& host, const std::string& for_what) {
  ByteWriter writer;
  writer.text(for_what)
      .text(host.hypervisor.version)
      .number(static_cast<std::uint8_t>(host.hypervisor.accelerator));
  writer.number(host.hypervisor.tsc_khz)
      .text(host.kvm_reason)
      .text(host.kvm_next_step)
      .texts(host.hypervisor.confinement_missing);
  return writer.take();
}

bool decode(std::string_view bytes, const std::string& for_what, Host& host) {
  ByteReader reader(bytes);
  if (reader.text() != for_what) return false;
  host.hypervisor.version = reader.text();
  const auto accelerator = reader.number<std::uint8_t>();
  host.hypervisor.accelerator = accelerator == 0 ? Accelerator::kKvm : Accelerator::kTcg;
  host.hypervisor.tsc_khz = reader.number<std::uint64_t>();
  host.kvm_reason = reader.text();
  host.kvm_next_step = reader.text();
  host.hypervisor.confinement_missing = reader.texts();
  return reader.done() && accelerator <= 1 && host.hypervisor.tsc_khz > 0;
}

/// First line of `program --version`, or nothing when it does not run.
std::string version_of(const std::string& program) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return {};
  const UniqueFd out(ends[0]);
  UniqueFd in(ends[1]);
  SpawnRequest request;
  request.program = program;
  request.argv = {program, "--version"};
  request.fds = {{in.get(), 1}};
  const auto child = spawn(request);
  in.reset();
  if (!child) return {};
  pollfd entry{out.get(), POLLIN, 0};
  char text[256];
  const ssize_t got = ::poll(&entry, 1, kVersionWaitMs) > 0 ? ::read(out.get(), text, sizeof(text)) : 0;
  if (got <= 0) kill_child(*child);
  static_cast<void>(wait_for(*child));
  std::string_view line(text, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
  line = line.substr(0, line.find('\n'));
  constexpr std::string_view kLead = "QEMU emulator version ";
  if (line.starts_with(kLead)) line.remove_prefix(kLead.size());
  return std::string(line);
}

void choose_accelerator(Host& host) {
  const char* forced = std::getenv("DRUPE_ACCELERATOR");
  if (forced != nullptr && std::string_view(forced) == "tcg") {
    host.kvm_reason = "DRUPE_ACCELERATOR chooses software emulation.";
    host.kvm_next_step = "Unset DRUPE_ACCELERATOR.";
    host.hypervisor.accelerator = Accelerator::kTcg;
    return;
  }
  const KvmProbe probe = probe_kvm(kKvmDevice, kKvmProbeLimit);
  const bool usable =
      probe.verdict == KvmVerdict::kUsable || (forced != nullptr && std::string_view(forced) == "kvm");
  host.hypervisor.accelerator = usable ? Accelerator::kKvm : Accelerator::kTcg;
  host.kvm_reason = usable ? std::string() : probe.reason;
  host.kvm_next_step = usable ? std::string() : probe.next_step;
}

}  // namespace

bool same_tsc(std::uint64_t a, std::uint64_t b) {
  const std::uint64_t difference = a > b ? a - b : b - a;
  return difference <= std::max(a, b) / kTscParts;
}

Result<Host> find_host(const Home& home, bool fresh) {
  Host host;
  host.hypervisor.name = "qemu";
  host.qemu_path = qemu_program();
  if (::access(host.qemu_path.c_str(), X_OK) != 0)
    return fail(ErrorCode::kNotFound, "There is no hypervisor: " + host.qemu_path + " cannot be executed",
                "Install it: apt-get install qemu-system-x86");
  const std::string for_what = circumstances(host.qemu_path);
  const auto cached = fresh ? Result<std::string>(std::string()) : read_file(home.dir(), kHostCache, 65536);
  if (!cached || !decode(*cached, for_what, host)) {
    choose_accelerator(host);
    host.hypervisor.version = version_of(host.qemu_path);
    host.hypervisor.tsc_khz = measure_tsc_khz();
    auto missing = probe_confinement();
    host.hypervisor.confinement_missing =
        missing ? std::move(*missing)
                : std::vector<std::string>{"nothing could be applied: " + missing.error().message};
    DRUPE_TRY(replace_file(home.dir(), kHostCache, encode(host, for_what), Sync::kNo));
  }
  DRUPE_ASSIGN(host.hypervisor.state_key, qemu_state_key(host.qemu_path, host.hypervisor.accelerator));
  return host;
}

}  // namespace drupe
