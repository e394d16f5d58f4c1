#include "engine/doctor.h"

#include <cstdlib>
#include <cstring>
#include <thread>

#include <fcntl.h>
#include <pwd.h>
#include <sys/statvfs.h>
#include <sys/utsname.h>
#include <unistd.h>

#include "engine/admission.h"
#include "engine/engine_impl.h"

namespace drupe {
namespace {

constexpr std::uint64_t kComfortableDiskMib = 4096;
constexpr std::uint64_t kLeastDiskMib = 512;
constexpr std::uint64_t kComfortableMemoryMib = 1024;

/// Collects findings.
class Findings {
 public:
  explicit Findings(DoctorReport& report) : report_(report) {}
  void add(std::string topic, DoctorLevel level, std::string text, std::string mend = {}) {
    report_.items.push_back({std::move(topic), level, std::move(text), std::move(mend)});
  }
  void check_program(const std::string& topic, const std::string& path, const std::string& what,
                     DoctorLevel if_missing, const std::string& mend) {
    if (::access(path.c_str(), X_OK) == 0)
      add(topic, DoctorLevel::kOk, what + ": " + path);
    else
      add(topic, if_missing, what + " is missing: " + path + " (" + std::strerror(errno) + ")", mend);
  }

 private:
  DoctorReport& report_;
};

std::string joined(const std::vector<std::string>& words) {
  std::string out;
  for (const std::string& word : words) out += (out.empty() ? "" : "; ") + word;
  return out;
}

std::string first_line(const std::string& path) {
  const auto text = read_file(AT_FDCWD, path, 4096);
  return text ? text->substr(0, text->find('\n')) : std::string();
}

bool on_path(const std::string& program) {
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "/usr/sbin:/usr/bin" : path;
  while (!rest.empty()) {
    const auto colon = rest.find(':');
    const std::string candidate = std::string(rest.substr(0, colon)) + "/" + program;
    if (::access(candidate.c_str(), X_OK) == 0) return true;
    rest = colon == std::string_view::npos ? std::string_view() : rest.substr(colon + 1);
  }
  return false;
}

void look_at_host(Findings& found, DoctorReport& report, const Result<Host>& host) {
  if (!host) {
    found.add("hypervisor", DoctorLevel::kProblem, host.error().message, host.error().next_step);
    return;
  }
  const bool kvm = host->hypervisor.accelerator == Accelerator::kKvm;
  report.hypervisor = host->hypervisor.name + " " + host->hypervisor.version;
  report.accelerator = kvm ? "kvm" : "tcg";
  report.isolation = host->isolation();
  report.confinement_missing = host->hypervisor.confinement_missing;
  report.confinement = confinement_word(report.confinement_missing);
  found.add("hypervisor", DoctorLevel::kOk,
            report.hypervisor + " at " + host->qemu_path + ", " +
                (kvm ? "with KVM (hardware virtualization)" : "with TCG (software emulation)"));
  if (kvm)
    found.add("kvm", DoctorLevel::kOk,
              "/dev/kvm ran 64-bit kernel code with the instructions a kernel needs");
  else
    found.add("kvm", DoctorLevel::kWarning,
              "KVM is not used: " + host->kvm_reason +
                  " Sandboxes run emulated: isolated by a machine in software, about ten times slower.",
              host->kvm_next_step);
  if (report.confinement_missing.empty())
    found.add(
        "confinement", DoctorLevel::kOk,
        "Helper processes are fully confined: namespaces, empty root, Landlock, seccomp, no capabilities");
  else
    found.add("confinement", DoctorLevel::kWarning,
              "Helper processes are not fully confined: " + joined(report.confinement_missing));
}

void look_at_programs(Findings& found, const Installation& installation) {
  const std::string rebuild = "scripts/quickstart.sh builds and installs it.";
  found.check_program("shim", installation.shim_path, "The sandbox supervisor", DoctorLevel::kProblem,
                      rebuild);
  if (::access(installation.preload_path.c_str(), R_OK) != 0)
    found.add("preload", DoctorLevel::kProblem, "The memory library is missing: " + installation.preload_path,
              rebuild);
  found.check_program("network", installation.net_path, "The network's program", DoctorLevel::kWarning,
                      rebuild + " Until then sandboxes have no network.");
  const bool kernel = ::access((installation.guest_dir + "/" + kKernelFile).c_str(), R_OK) == 0;
  const bool initramfs = ::access((installation.guest_dir + "/" + kInitramfsFile).c_str(), R_OK) == 0;
  if (kernel && initramfs)
    found.add("kernel", DoctorLevel::kOk,
              "The guest kernel " + first_line(installation.guest_dir + "/kernel.version") + " is in " +
                  installation.guest_dir);
  else
    found.add("kernel", DoctorLevel::kProblem,
              "The guest's kernel or initramfs is missing in " + installation.guest_dir, "scripts/guest.sh");
  if (on_path("mmdebstrap"))
    found.add("mmdebstrap", DoctorLevel::kOk, "Images can be built from Debian packages");
  else
    found.add("mmdebstrap", DoctorLevel::kNote,
              "mmdebstrap is not installed: images can be pulled, not built from Debian packages",
              "apt-get install mmdebstrap");
}

/// Building images without root needs a range of subordinate ids.
void look_at_ids(Findings& found) {
  if (::geteuid() == 0) {
    found.add("subordinate-ids", DoctorLevel::kOk,
              "Running as root: images are built without user namespaces");
    return;
  }
  const passwd* user = ::getpwuid(::geteuid());
  const std::string name = user == nullptr ? std::to_string(::geteuid()) : user->pw_name;
  const auto listed = [&](const char* file) {
    const auto text = read_file(AT_FDCWD, file, std::size_t{1} << 20);
    return text && ("\n" + *text).find("\n" + name + ":") != std::string::npos;
  };
  if (listed("/etc/subuid") && listed("/etc/subgid") && on_path("newuidmap"))
    found.add("subordinate-ids", DoctorLevel::kOk,
              name + " has subordinate ids: images can be built from Debian packages");
  else if (!on_path("newuidmap"))
    found.add("subordinate-ids", DoctorLevel::kNote,
              "newuidmap is not installed: images cannot be built from Debian packages as " + name,
              "apt-get install uidmap");
  else
    found.add("subordinate-ids", DoctorLevel::kNote,
              name + " has no subordinate ids: images cannot be built from Debian packages",
              "usermod --add-subuids 100000-165535 --add-subgids 100000-165535 " + name);
}

void look_at_limits(Findings& found) {
  const std::string namespaces = first_line("/proc/sys/user/max_user_namespaces");
  const std::string unprivileged = first_line("/proc/sys/kernel/unprivileged_userns_clone");
  if (namespaces == "0" || (unprivileged == "0" && ::geteuid() != 0))
    found.add("user-namespaces", DoctorLevel::kWarning,
              "User namespaces are turned off: helpers cannot have an empty root of their own",
              namespaces == "0" ? "sysctl -w user.max_user_namespaces=10000"
                                : "sysctl -w kernel.unprivileged_userns_clone=1");
  else
    found.add("user-namespaces", DoctorLevel::kOk, "User namespaces can be made");
  const std::string scope = first_line("/proc/sys/kernel/yama/ptrace_scope");
  if (scope == "3")
    found.add("ptrace", DoctorLevel::kProblem,
              "kernel.yama.ptrace_scope is 3: the supervisor cannot read its own hypervisor's memory, so "
              "nothing can be paused or forked",
              "sysctl -w kernel.yama.ptrace_scope=1 (it takes a restart of the machine to lower it from 3)");
  else if (scope == "2" && ::geteuid() != 0)
    found.add("ptrace", DoctorLevel::kWarning,
              "kernel.yama.ptrace_scope is 2: without root nothing can be paused or forked",
              "sysctl -w kernel.yama.ptrace_scope=1");
  else
    found.add("ptrace", DoctorLevel::kOk,
              scope.empty() ? "ptrace is not restricted by Yama" : "kernel.yama.ptrace_scope is " + scope);
  if (first_line("/proc/self/clear_refs").empty() && ::access("/proc/self/pagemap", R_OK) != 0)
    found.add("pagemap", DoctorLevel::kProblem, "/proc/self/pagemap cannot be read: memory cannot be saved");
}

void look_at_room(Findings& found, const Home& home) {
  if (const auto room = memory_room()) {
    const std::string text = std::to_string(room->available_mib) + " of " + std::to_string(room->total_mib) +
                             " MiB of memory are available, " +
                             std::to_string(std::thread::hardware_concurrency()) + " CPUs";
    found.add("memory",
              room->available_mib >= kComfortableMemoryMib ? DoctorLevel::kOk : DoctorLevel::kWarning, text);
  } else {
    found.add("memory", DoctorLevel::kWarning, room.error().message);
  }
  struct statvfs disk{};
  if (::fstatvfs(home.dir(), &disk) != 0) return;
  const std::uint64_t free_mib = std::uint64_t{disk.f_bavail} * disk.f_frsize >> 20;
  const std::string text =
      std::to_string(free_mib) + " MiB are free for sandboxes and images in " + home.path();
  if (free_mib >= kComfortableDiskMib)
    found.add("disk", DoctorLevel::kOk, text);
  else
    found.add("disk", free_mib >= kLeastDiskMib ? DoctorLevel::kWarning : DoctorLevel::kProblem, text,
              "drupe prune");
}

}  // namespace

std::string_view to_string(DoctorLevel level) {
  switch (level) {
    case DoctorLevel::kOk:
      return "ok";
    case DoctorLevel::kNote:
      return "note";
    case DoctorLevel::kWarning:
      return "warning";
    case DoctorLevel::kProblem:
      break;
  }
  return "problem";
}

std::string confinement_word(const std::vector<std::string>& missing) {
  if (missing.empty()) return "full";
  return missing.size() <= 2 ? "partial" : "weak";
}

Result<DoctorReport> EngineImpl::doctor() {
  DoctorReport report;
  Findings found(report);
  utsname system{};
  if (::uname(&system) == 0)
    found.add("system", DoctorLevel::kOk,
              std::string(system.sysname) + " " + system.release + " on " + system.machine);
  auto machine = find_host(home_, true);
  look_at_host(found, report, machine);
  if (machine) host_ = std::move(*machine);
  look_at_programs(found, installation_);
  look_at_limits(found);
  look_at_ids(found);
  look_at_room(found, home_);
  const auto store = images();
  const auto all = store ? (*store)->list() : Result<std::vector<Image>>(std::unexpected(store.error()));
  if (!all)
    found.add("images", DoctorLevel::kProblem, "The image store cannot be used: " + all.error().message,
              all.error().next_step);
  else if (all->empty())
    found.add("images", DoctorLevel::kNote, "There are no images yet", "drupe image build-debian devbox:1");
  else
    found.add("images", DoctorLevel::kOk, std::to_string(all->size()) + " images");
  report.can_run = true;
  for (const DoctorItem& item : report.items)
    report.can_run = report.can_run && item.level != DoctorLevel::kProblem;
  return report;
}

}  // namespace drupe
