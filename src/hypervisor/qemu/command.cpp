#include "hypervisor/qemu/command.h"

#include <cstdio>

namespace drupe {
namespace {

std::string number(std::uint64_t value) {
  return std::to_string(value);
}

class Arguments {
 public:
  explicit Arguments(std::string program) { argv_.push_back(std::move(program)); }
  Arguments& add(std::string flag) {
    argv_.push_back(std::move(flag));
    return *this;
  }
  Arguments& add(std::string flag, std::string value) { return add(std::move(flag)).add(std::move(value)); }
  [[nodiscard]] std::vector<std::string> take() { return std::move(argv_); }

 private:
  std::vector<std::string> argv_;
};

// Why each word is there: see README.md, "Kernel parameters".
std::string kernel_parameters(const QemuCommandInput& input) {
  // Two is "alert": a file system without a disk to write to reports every page as critical, and each line
  // costs an emulated machine a millisecond. A panic is always printed whole.
  std::string out =
      "console=ttyS0 loglevel=2 panic=-1 reboot=t random.trust_cpu=on raid=noautodetect audit=0 psi=0 "
      "nowatchdog transparent_hugepage=madvise lsm=lockdown,landlock";
  if (input.accelerator == Accelerator::kTcg) {
    // With the right number, never a rounded guess: every clock of the guest runs by it. HZ is 250 in
    // Debian's kernel.
    out += " tsc_early_khz=" + number(input.tsc_khz) +
           " tsc=reliable lpj=" + number(input.tsc_khz * 1000 / 250) +
           " no_timer_check mitigations=off init_on_alloc=0 hardened_usercopy=off";
  }
  if (!input.command_line.empty()) out += " " + input.command_line;
  return out;
}

std::string accelerator(const QemuCommandInput& input) {
  if (input.accelerator == Accelerator::kKvm) return "kvm";
  // 64 MiB of translated code: 16 make a warm Python four times slower, more only costs memory.
  return "tcg,thread=multi,tb-size=64";
}

void add_channels(Arguments& args) {
  const auto socket = [&args](const char* id, int fd) {
    args.add("-chardev", std::string("socket,id=") + id + ",fd=" + number(static_cast<unsigned>(fd)));
  };
  socket("qmp", qemu_fd::kQmp);
  args.add("-mon", "chardev=qmp,mode=control");
  socket("console", qemu_fd::kConsole);
  args.add("-serial", "chardev:console");
  socket("control", qemu_fd::kControl);
  socket("bulk", qemu_fd::kBulk);
  args.add("-device", "virtio-serial-device,max_ports=3");
  args.add("-device", "virtserialport,chardev=control,nr=1,name=drupe.control");
  args.add("-device", "virtserialport,chardev=bulk,nr=2,name=drupe.bulk");
}

void add_disk(Arguments& args, const std::vector<DiskFormat>& formats) {
  std::string backing;
  for (std::size_t i = 0; i < formats.size(); ++i) {
    const bool read_only = i + 1 != formats.size();
    const std::string fd = number(static_cast<unsigned>(qemu_fd::kFirstDisk) + i);
    args.add("-add-fd", "fd=" + fd + ",set=" + number(i));
    args.add("-blockdev", file_node_json(i, i, read_only));
    args.add("-blockdev", disk_node_json(i, formats[i], read_only, backing));
    backing = disk_node_name(i, false);
  }
  args.add("-device", "virtio-blk-device,id=" + std::string(kDiskDeviceId) + ",drive=" + backing +
                          ",serial=drupe-root,discard=on,werror=report,rerror=report");
}

std::string preload(const QemuCommandInput& input) {
  const auto entry = [](const char* name, std::uint64_t value) {
    return std::string(name) + "=" + number(value);
  };
  std::string out = entry("size", std::uint64_t{input.shape.memory_mib} << 20);
  out += " " + entry("ram", qemu_fd::kRam) + " " + entry("report", qemu_fd::kReport);
  if (input.has_delta)
    out += " " + entry("delta", qemu_fd::kDelta) + " " + entry("extents", qemu_fd::kExtents);
  if (input.late_delta) out += " " + entry("late", 1);
  if (!input.restore)
    out += " " + entry("kernel", qemu_fd::kKernel) + " " + entry("initramfs", qemu_fd::kInitramfs);
  if (input.accelerator == Accelerator::kKvm) out += " " + entry("kvm", qemu_fd::kKvm);
  if (input.anonymous_ram) out += " " + entry("anonymous", 1);
  return out;
}

}  // namespace

std::string disk_node_name(std::uint64_t serial, bool file) {
  return (file ? "file" : "disk") + number(serial);
}

std::string file_node_json(std::uint64_t serial, std::uint64_t fdset, bool read_only) {
  // no-flush: what the guest has flushed is in the host's page cache, which a killed process does not lose;
  // whoever needs it on the platter fsyncs the file. It keeps stop and the guest's fsync fast.
  return R"({"driver":"file","node-name":")" + disk_node_name(serial, true) + R"(","filename":"/dev/fdset/)" +
         number(fdset) + R"(","read-only":)" + (read_only ? "true" : "false") +
         R"(,"auto-read-only":false,"locking":"off","discard":"unmap","cache":{"direct":false,"no-flush":true}})";
}

std::string disk_node_json(std::uint64_t serial, DiskFormat format, bool read_only,
                           const std::string& backing) {
  std::string out = std::string(R"({"driver":")") + (format == DiskFormat::kRaw ? "raw" : "qcow2") +
                    R"(","node-name":")" + disk_node_name(serial, false) + R"(","file":")" +
                    disk_node_name(serial, true) + R"(","read-only":)" + (read_only ? "true" : "false") +
                    R"(,"auto-read-only":false,"discard":"unmap","cache":{"direct":false,"no-flush":true})";
  if (format == DiskFormat::kQcow2)
    out += R"(,"backing":)" + (backing.empty() ? "null" : "\"" + backing + "\"");
  return out + "}";
}

QemuCommand qemu_command(const QemuCommandInput& input) {
  Arguments args(input.program);
  args.add("-name", "drupe");
  args.add("-nodefaults").add("-no-user-config").add("-no-reboot").add("-S");
  args.add("-display", "none");
  args.add("-sandbox", "on,obsolete=deny,elevateprivileges=deny,spawn=deny,resourcecontrol=deny");
  args.add("-M", "microvm,acpi=on,auto-kernel-cmdline=off,memory-backend=ram");
  args.add("-accel", accelerator(input));
  args.add("-cpu", input.accelerator == Accelerator::kKvm ? "host" : kTcgCpu);
  args.add("-smp", number(input.shape.vcpus));
  args.add("-m", number(input.shape.memory_mib) + "M");
  args.add("-object", "memory-backend-file,id=ram,mem-path=/drupe/ram,share=off,size=" +
                          number(input.shape.memory_mib) + "M");
  args.add("-global", "virtio-mmio.force-legacy=false");
  // Saved device state has no configuration section in front.
  args.add("-global", "migration.send-configuration=off");
  add_channels(args);
  add_disk(args, input.disk);
  char mac[18];
  std::snprintf(mac, sizeof mac, "%02x:%02x:%02x:%02x:%02x:%02x", input.mac[0], input.mac[1], input.mac[2],
                input.mac[3], input.mac[4], input.mac[5]);
  args.add("-netdev",
           "dgram,id=" + std::string(kNetId) + ",local.type=fd,local.str=" + number(qemu_fd::kNet));
  // No announcement after a restore: the host knows where the machine is, and the guest's answer to it would
  // run half of its network code in every sandbox, those without a network included.
  args.add("-device",
           "virtio-net-device,netdev=" + std::string(kNetId) + ",mac=" + mac + ",guest_announce=off");
  if (input.restore) {
    args.add("-incoming", "defer");
  } else {
    args.add("-kernel", "/drupe/kernel").add("-initrd", "/drupe/initramfs");
    args.add("-append", kernel_parameters(input));
  }
  return QemuCommand{args.take(), preload(input)};
}

}  // namespace drupe
