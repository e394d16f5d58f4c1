#include "hypervisor/qemu/command.h"

#include <algorithm>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace drupe {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::Not;

QemuCommandInput input() {
  QemuCommandInput in;
  in.program = "/usr/bin/qemu-system-x86_64";
  in.tsc_khz = 2100000;
  in.shape = MachineShape{2, 512};
  in.disk = {DiskFormat::kRaw, DiskFormat::kQcow2};
  in.mac = {0x52, 0x54, 0, 0xab, 0, 1};
  return in;
}

std::string after(const QemuCommand& command, const std::string& flag) {
  const auto at = std::ranges::find(command.argv, flag);
  return at == command.argv.end() || at + 1 == command.argv.end() ? "" : *(at + 1);
}

TEST(QemuCommand, NothingIsThereThatNobodyAskedFor) {
  const auto command = qemu_command(input());
  for (const char* flag : {"-nodefaults", "-no-user-config", "-no-reboot", "-S"})
    EXPECT_THAT(command.argv, Contains(flag));
  EXPECT_THAT(after(command, "-sandbox"), HasSubstr("spawn=deny"));
  EXPECT_EQ(after(command, "-display"), "none");
}

TEST(QemuCommand, EveryDiskNodeIsNamedWithFormatAndBacking) {
  const auto command = qemu_command(input());
  std::vector<std::string> nodes;
  for (std::size_t i = 0; i + 1 < command.argv.size(); ++i)
    if (command.argv[i] == "-blockdev") nodes.push_back(command.argv[i + 1]);
  ASSERT_EQ(nodes.size(), 4U);
  EXPECT_THAT(nodes[0],
              HasSubstr(R"("driver":"file","node-name":"file0","filename":"/dev/fdset/0","read-only":true)"));
  EXPECT_THAT(nodes[1], HasSubstr(R"("driver":"raw","node-name":"disk0","file":"file0","read-only":true)"));
  EXPECT_THAT(nodes[1], Not(HasSubstr("backing")));
  EXPECT_THAT(nodes[2], HasSubstr(R"("read-only":false)"));
  EXPECT_THAT(nodes[3],
              HasSubstr(R"("driver":"qcow2","node-name":"disk1","file":"file1","read-only":false)"));
  EXPECT_THAT(nodes[3], HasSubstr(R"("backing":"disk0")"));
  for (const auto& node : nodes) EXPECT_THAT(node, HasSubstr(R"("auto-read-only":false)"));
}

TEST(QemuCommand, ABackingThatIsAbsentIsSaidToBe) {
  EXPECT_THAT(disk_node_json(3, DiskFormat::kQcow2, false, {}), HasSubstr(R"("backing":null)"));
}

TEST(QemuCommand, BootUnderTcgNamesTheMeasuredFrequency) {
  auto in = input();
  in.command_line = "drupe.test=1";
  const auto command = qemu_command(in);
  const auto kernel = after(command, "-append");
  EXPECT_THAT(kernel, HasSubstr("tsc_early_khz=2100000 tsc=reliable lpj=8400000 no_timer_check"));
  EXPECT_THAT(kernel, HasSubstr(" drupe.test=1"));
  EXPECT_THAT(after(command, "-accel"), HasSubstr("tcg"));
  EXPECT_THAT(after(command, "-cpu"), HasSubstr("erms=off"));
  EXPECT_EQ(after(command, "-incoming"), "");
}

TEST(QemuCommand, KvmTakesTheHostsProcessorAndItsDevice) {
  auto in = input();
  in.accelerator = Accelerator::kKvm;
  const auto command = qemu_command(in);
  EXPECT_EQ(after(command, "-accel"), "kvm");
  EXPECT_EQ(after(command, "-cpu"), "host");
  EXPECT_THAT(after(command, "-append"), Not(HasSubstr("tsc_early_khz")));
  EXPECT_THAT(command.preload, HasSubstr("kvm=14"));
}

TEST(QemuCommand, RestoreHasTheSameDevicesAndNoKernel) {
  auto in = input();
  const auto boot = qemu_command(in);
  in.restore = true;
  in.has_delta = true;
  const auto restore = qemu_command(in);
  EXPECT_EQ(after(restore, "-incoming"), "defer");
  EXPECT_EQ(after(restore, "-kernel"), "");
  const auto devices = [](const QemuCommand& command) {
    std::vector<std::string> out;
    for (std::size_t i = 0; i + 1 < command.argv.size(); ++i)
      for (const char* flag :
           {"-M", "-cpu", "-smp", "-m", "-device", "-global", "-netdev", "-object", "-blockdev"})
        if (command.argv[i] == flag) out.push_back(command.argv[i + 1]);
    return out;
  };
  EXPECT_EQ(devices(boot), devices(restore));
  EXPECT_THAT(restore.preload, HasSubstr("delta=10 extents=11"));
  EXPECT_THAT(restore.preload, Not(HasSubstr("kernel")));
  EXPECT_THAT(boot.preload, HasSubstr("size=536870912 ram=9 report=8 kernel=12 initramfs=13"));
}

}  // namespace
}  // namespace drupe
