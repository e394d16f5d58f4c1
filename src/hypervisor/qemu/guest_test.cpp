// The driver with a real guest: boot once, then everything that starts from saved state.
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/confine.h"
#include "hypervisor/qemu/testing/test_guest.h"

namespace drupe {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ask;
using ::testing::HasSubstr;
using testing::TestGuest;

// Long enough for a machine that is emulated inside of an emulated one; nothing waits that long when it
// works.
constexpr seconds kPatience{240};

Deadline soon() {
  return Clock::now() + kPatience;
}

// DRUPE_TEST_ACCELERATOR=kvm runs all of this with KVM (in the lab).
Accelerator accelerator() {
  const char* chosen = std::getenv("DRUPE_TEST_ACCELERATOR");
  return chosen != nullptr && std::string_view(chosen) == "kvm" ? Accelerator::kKvm : Accelerator::kTcg;
}

class Guest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    reason_ = TestGuest::unavailable();
    if (!reason_.empty()) return;
    auto guest = TestGuest::create(accelerator());
    if (guest) guest_ = std::move(*guest);
    const auto made = guest ? make_base() : Status(std::unexpected(guest.error()));
    failure_ = made ? "" : to_string(made.error());
  }
  static void TearDownTestSuite() { guest_.reset(); }

  void SetUp() override {
    if (!reason_.empty()) GTEST_SKIP() << reason_;
    ASSERT_EQ(failure_, "");
  }

  static Status make_base() {
    DRUPE_ASSIGN(auto machine, guest_->boot({"image.ext4", "base.qcow2"}));
    DRUPE_TRY(ask(guest_->loop(), *machine, "fill 16 7", kPatience));
    DRUPE_TRY(ask(guest_->loop(), *machine, "write /root/keep 2 5", kPatience));
    DRUPE_TRY(machine->stop(soon()));
    DRUPE_ASSIGN(base_, guest_->save(*machine, SaveForm::kWhole));
    return {};
  }

  static std::string tell(Machine& machine, const std::string& line) {
    const auto answer = ask(guest_->loop(), machine, line, kPatience);
    return answer ? *answer : "no answer: " + to_string(answer.error());
  }

  /// A machine from the base snapshot whose top layer is a new file `name`.
  static std::unique_ptr<Machine> from_base(const std::string& name) {
    auto machine = guest_->restore({"image.ext4", "base.qcow2", name}, &base_);
    EXPECT_TRUE(machine) << to_string(machine.error());
    if (!machine) return nullptr;
    EXPECT_EQ(tell(**machine, "ping 1"), "pong 1");
    return std::move(*machine);
  }

  /// Goes on in a new machine, whose top layer is the last of `disk`.
  static std::unique_ptr<Machine> replaced(Machine& machine, const std::vector<std::string>& disk) {
    auto next = guest_->prepare(disk, &base_);
    EXPECT_TRUE(next) << to_string(next.error());
    if (!next || !machine.stop(soon())) return nullptr;
    const auto delta = guest_->save(machine, SaveForm::kDelta);
    EXPECT_TRUE(delta) << to_string(delta.error());
    if (!delta) return nullptr;
    const auto restored = (*next)->restore(*guest_->open_saved(*delta), soon());
    EXPECT_TRUE(restored) << to_string(restored.error());
    return restored ? std::move(*next) : nullptr;
  }

  static MachineEnd wait_for_end(Machine& machine) {
    MachineEnd seen;
    bool ended = false;
    machine.on_end([&](const MachineEnd& end) {
      seen = end;
      ended = true;
    });
    EXPECT_TRUE(guest_->loop().run_until([&ended] { return ended; }, soon()).value_or(false));
    return seen;
  }

  static inline std::unique_ptr<TestGuest> guest_;
  static inline TestGuest::Saved base_;
  static inline std::string reason_, failure_;
};

TEST_F(Guest, RestoredMachinesContinueWithTheirMemoryAndDisk) {
  const auto machine = from_base("continue");
  ASSERT_TRUE(machine);
  EXPECT_EQ(tell(*machine, "verify 7"), "ok");
  EXPECT_EQ(tell(*machine, "check /root/keep 2 5"), "0");
  EXPECT_EQ(tell(*machine, "exec"), "0");
}

TEST_F(Guest, ClocksRunAtTheirProperSpeed) {
  const auto machine = from_base("clock");
  ASSERT_TRUE(machine);
  const auto start = Clock::now();
  const auto first = std::stoull(tell(*machine, "clock"));
  guest_->loop().run_until([] { return false; }, Clock::now() + milliseconds(700)).value_or(false);
  const auto guest_ms = static_cast<double>(std::stoull(tell(*machine, "clock")) - first);
  const auto host_ms = std::chrono::duration<double, std::milli>(Clock::now() - start).count();
  EXPECT_NEAR(guest_ms / host_ms, 1.0, 0.25);
}

TEST_F(Guest, NothingThatAMachineDoesChangesItsBase) {
  const auto sum = [](const std::string& name) {
    std::uint64_t hash = 14695981039346656037ULL;
    const auto file = guest_->open_file(name, O_RDONLY);
    std::string chunk(1U << 20, '\0');
    for (ssize_t got = 1; (got = ::read(file->get(), chunk.data(), chunk.size())) > 0;)
      for (ssize_t i = 0; i < got; i += 8)
        hash = (hash ^ static_cast<unsigned char>(chunk[static_cast<std::size_t>(i)])) * 1099511628211ULL;
    return hash;
  };
  const std::vector<std::string> names{base_.memory, base_.state, "base.qcow2", "image.ext4"};
  std::vector<std::uint64_t> before;
  for (const auto& name : names) before.push_back(sum(name));
  {
    const auto machine = from_base("changes");
    ASSERT_TRUE(machine);
    EXPECT_EQ(tell(*machine, "fill 24 9"), "ok");
    EXPECT_EQ(tell(*machine, "write /root/more 4 1"), "0");
  }
  for (std::size_t i = 0; i < names.size(); ++i) EXPECT_EQ(sum(names[i]), before[i]) << names[i];
}

TEST_F(Guest, PauseAndResumeSeveralTimes) {
  auto machine = from_base("pause");
  ASSERT_TRUE(machine);
  EXPECT_EQ(tell(*machine, "fill 20 3"), "ok");
  for (int round = 0; round < 3; ++round) {
    ASSERT_TRUE(machine->stop(soon()));
    const auto delta = guest_->save(*machine, SaveForm::kDelta);
    ASSERT_TRUE(delta) << to_string(delta.error());
    EXPECT_LT(delta->bytes, 80U << 20);
    machine.reset();
    auto resumed = guest_->restore({"image.ext4", "base.qcow2", "pause"}, &base_, &*delta);
    ASSERT_TRUE(resumed) << to_string(resumed.error());
    machine = std::move(*resumed);
    EXPECT_EQ(tell(*machine, "verify 3"), "ok") << "round " << round;
    EXPECT_EQ(tell(*machine, "write /root/r" + std::to_string(round) + " 1 8"), "0");
  }
  EXPECT_EQ(tell(*machine, "check /root/r0 1 8"), "0");
}

TEST_F(Guest, ASavedMachineGoesOnAsIfNothingHadBeen) {
  auto machine = from_base("goes-on");
  ASSERT_TRUE(machine);
  ASSERT_TRUE(machine->stop(soon()));
  ASSERT_TRUE(guest_->save(*machine, SaveForm::kDelta));
  ASSERT_TRUE(machine->cont(soon()));
  EXPECT_EQ(tell(*machine, "ping 2"), "pong 2");
  EXPECT_EQ(tell(*machine, "verify 7"), "ok");
}

// The state of a process, and of each of its threads, in the words of proc(5).
std::string states_of(int pid) {
  std::string states;
  for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(pid) + "/task")) {
    std::ifstream file(task.path() / "stat");
    std::string stat((std::istreambuf_iterator<char>(file)), {});
    states += stat.substr(stat.rfind(')') + 2, 1);
  }
  return states;
}

TEST_F(Guest, AMachineThatIsHeldRunsNothingUntilItGoesOn) {
  auto machine = from_base("held");
  ASSERT_TRUE(machine);
  ASSERT_TRUE(machine->stop(soon()));
  ASSERT_TRUE(guest_->save(*machine, SaveForm::kDelta));
  ASSERT_TRUE(machine->hold(soon()));
  const std::string states = states_of(machine->pid());
  EXPECT_GT(states.size(), 1U);
  EXPECT_EQ(states, std::string(states.size(), 'T'));
  ASSERT_TRUE(machine->cont(soon()));
  EXPECT_EQ(tell(*machine, "ping 2"), "pong 2");
  // And ends like any other.
  ASSERT_TRUE(machine->stop(soon()));
  ASSERT_TRUE(machine->hold(soon()));
  bool ended = false;
  machine->on_end([&ended](const MachineEnd&) { ended = true; });
  machine->kill();
  EXPECT_TRUE(*guest_->loop().run_until([&ended] { return ended; }, soon()));
}

TEST_F(Guest, EverySaveOfOneMachineCanBeStarted) {
  auto machine = from_base("twice");
  ASSERT_TRUE(machine);
  std::vector<TestGuest::Saved> saves;
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(tell(*machine, "fill 4 " + std::to_string(40 + i)), "ok");
    ASSERT_TRUE(machine->stop(soon()));
    auto saved = guest_->save(*machine, SaveForm::kDelta);
    ASSERT_TRUE(saved) << to_string(saved.error());
    saves.push_back(std::move(*saved));
    ASSERT_TRUE(machine->cont(soon()));
  }
  machine.reset();
  for (int i = 2; i >= 0; --i) {
    auto started = guest_->restore({"image.ext4", "base.qcow2", "twice-" + std::to_string(i)}, &base_,
                                   &saves[static_cast<std::size_t>(i)]);
    ASSERT_TRUE(started) << to_string(started.error());
    EXPECT_EQ(tell(**started, "verify " + std::to_string(40 + i)), "ok");
  }
}

TEST_F(Guest, ForksShareNothingThatTheyWrite) {
  auto parent = from_base("parent");
  ASSERT_TRUE(parent);
  EXPECT_EQ(tell(*parent, "write /root/before 2 1"), "0");
  EXPECT_EQ(tell(*parent, "load on"), "ok");
  // What goes on in its place has opened the node before the last bytes were written there.
  auto next = guest_->prepare({"image.ext4", "base.qcow2", "parent", "parent-2"}, &base_);
  ASSERT_TRUE(next) << to_string(next.error());
  EXPECT_EQ(tell(*parent, "write /root/late 8 3"), "0");
  ASSERT_TRUE(parent->stop(soon()));
  const auto delta = guest_->save(*parent, SaveForm::kDelta);
  ASSERT_TRUE(delta);
  const auto restored = (*next)->restore(*guest_->open_saved(*delta), soon());
  ASSERT_TRUE(restored) << to_string(restored.error());
  parent = std::move(*next);
  std::vector<std::unique_ptr<Machine>> all;
  for (const char* name : {"child-1", "child-2"}) {
    auto child = guest_->restore({"image.ext4", "base.qcow2", "parent", name}, &base_, &*delta);
    ASSERT_TRUE(child) << to_string(child.error());
    all.push_back(std::move(*child));
  }
  all.push_back(std::move(parent));
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(tell(*all[i], "load off"), "ok");
    EXPECT_EQ(tell(*all[i], "check /root/before 2 1"), "0");
    EXPECT_EQ(tell(*all[i], "check /root/late 8 3"), "0");
    EXPECT_EQ(tell(*all[i], "fill 8 " + std::to_string(i)), "ok");
    EXPECT_EQ(tell(*all[i], "write /root/own 2 " + std::to_string(100 + i)), "0");
  }
  for (std::size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(tell(*all[i], "verify " + std::to_string(i)), "ok");
    EXPECT_EQ(tell(*all[i], "check /root/own 2 " + std::to_string(100 + i)), "0");
  }
  for (auto& machine : all) machine->kill();
  all.clear();
  EXPECT_EQ(guest_->fsck({"image.ext4", "base.qcow2", "parent", "child-1"}), "");
  EXPECT_EQ(guest_->fsck({"image.ext4", "base.qcow2", "parent", "parent-2"}), "");
}

TEST_F(Guest, AMachineIsReplacedAgainAndAgain) {
  auto machine = from_base("replaced-0");
  ASSERT_TRUE(machine);
  std::vector<std::string> disk{"image.ext4", "base.qcow2", "replaced-0"};
  for (int i = 1; i <= 4; ++i) {
    EXPECT_EQ(tell(*machine, "fill 20 " + std::to_string(i)), "ok");
    EXPECT_EQ(tell(*machine, "write /root/r" + std::to_string(i) + " 3 " + std::to_string(i)), "0");
    EXPECT_EQ(tell(*machine, "load on"), "ok");
    disk.push_back("replaced-" + std::to_string(i));
    machine = replaced(*machine, disk);
    ASSERT_TRUE(machine);
    EXPECT_EQ(tell(*machine, "load off"), "ok");
    EXPECT_EQ(tell(*machine, "verify " + std::to_string(i)), "ok") << "round " << i;
    for (int j = 1; j <= i; ++j)
      EXPECT_EQ(tell(*machine, "check /root/r" + std::to_string(j) + " 3 " + std::to_string(j)), "0");
  }
  EXPECT_EQ(tell(*machine, "sync"), "ok");
  machine.reset();
  EXPECT_EQ(guest_->fsck(disk), "");
}

// A machine that boots has no base: all of its memory is in the delta.
TEST_F(Guest, ABootedMachineIsReplaced) {
  auto machine = guest_->boot({"image.ext4", "boot-0"});
  ASSERT_TRUE(machine) << to_string(machine.error());
  EXPECT_EQ(tell(**machine, "fill 16 5"), "ok");
  auto next = guest_->prepare({"image.ext4", "boot-0", "boot-1"}, nullptr);
  ASSERT_TRUE(next) << to_string(next.error());
  ASSERT_TRUE((*machine)->stop(soon()));
  const auto delta = guest_->save(**machine, SaveForm::kDelta);
  ASSERT_TRUE(delta);
  const auto restored = (*next)->restore(*guest_->open_saved(*delta), soon());
  ASSERT_TRUE(restored) << to_string(restored.error());
  EXPECT_EQ(tell(**next, "verify 5"), "ok");
}

TEST_F(Guest, AStarterStartsMachinesThatAreOurChildren) {
  auto machine = from_base("starter-0");
  ASSERT_TRUE(machine);
  auto hypervisor = make_qemu_hypervisor(guest_->options());
  ASSERT_TRUE(hypervisor);
  HelperProgram helper;
  helper.errand = [](std::string_view request) -> Result<UniqueFd> {
    if (request != "null") return fail(ErrorCode::kPermission, "Not this one");
    return open_at(AT_FDCWD, "/dev/null", O_RDONLY);
  };
  ASSERT_TRUE((*hypervisor)->keep_starter(helper));
  std::vector<std::string> disk{"image.ext4", "base.qcow2", "starter-0"};
  for (int i = 1; i <= 2; ++i) {
    disk.push_back("starter-" + std::to_string(i));
    auto spec = guest_->spec(disk, &base_, nullptr);
    ASSERT_TRUE(spec);
    spec->device_state.reset();
    auto next = (*hypervisor)->prepare(guest_->loop(), std::move(*spec), soon());
    ASSERT_TRUE(next) << to_string(next.error());
    EXPECT_EQ((*next)->confinement_missing(), machine->confinement_missing());
    ASSERT_TRUE(machine->stop(soon()));
    const auto delta = guest_->save(*machine, SaveForm::kDelta);
    ASSERT_TRUE(delta);
    ASSERT_TRUE((*next)->restore(*guest_->open_saved(*delta), soon()));
    machine = std::move(*next);
    EXPECT_EQ(tell(*machine, "verify 7"), "ok");
    const auto status = read_file(AT_FDCWD, "/proc/" + std::to_string(machine->pid()) + "/status", 65536);
    ASSERT_TRUE(status);
    EXPECT_THAT(*status, HasSubstr("PPid:\t" + std::to_string(::getpid()) + "\n"));
    EXPECT_THAT(*status, HasSubstr("CapEff:\t0000000000000000"));
  }
  // Errands are run beside that, and refused there.
  const auto fd = (*hypervisor)->run_errand(guest_->loop(), "null", soon());
  ASSERT_TRUE(fd) << to_string(fd.error());
  EXPECT_TRUE(fd->valid());
  const auto denied = (*hypervisor)->run_errand(guest_->loop(), "zero", soon());
  ASSERT_FALSE(denied);
  EXPECT_EQ(denied.error().code, ErrorCode::kPermission);
  // What does not fit is refused there, too, and does it no harm.
  auto wrong = guest_->spec(disk, &base_, nullptr);
  ASSERT_TRUE(wrong);
  wrong->shape.memory_mib = 512;
  const auto refused = (*hypervisor)->prepare(guest_->loop(), std::move(*wrong), soon());
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kIntegrity);
  machine->kill();
  EXPECT_THAT(wait_for_end(*machine).reason, HasSubstr("killed by signal 9"));
}

TEST_F(Guest, LayersAreJoinedWhileTheGuestWrites) {
  auto machine = from_base("layer-0");
  ASSERT_TRUE(machine);
  std::vector<std::string> layers{"image.ext4", "base.qcow2", "layer-0"};
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(tell(*machine, "write /root/layer" + std::to_string(i) + " 2 " + std::to_string(i)), "0");
    layers.push_back("layer-" + std::to_string(i));
    machine = replaced(*machine, layers);
    ASSERT_TRUE(machine);
  }
  EXPECT_EQ(tell(*machine, "load on"), "ok");
  std::optional<Status> joined;
  machine->flatten_disk([&joined](Status status) { joined = std::move(status); });
  ASSERT_TRUE(guest_->loop().run_until([&joined] { return joined.has_value(); }, soon()).value_or(false));
  ASSERT_TRUE(*joined) << to_string(joined->error());
  ASSERT_TRUE(machine->drop_flattened(soon()));
  ASSERT_TRUE(machine->drop_flattened(soon())) << "there is nothing left to do";
  EXPECT_EQ(tell(*machine, "load off"), "ok");
  EXPECT_EQ(tell(*machine, "sync"), "ok");
  for (int i = 1; i <= 3; ++i)
    EXPECT_EQ(tell(*machine, "check /root/layer" + std::to_string(i) + " 2 " + std::to_string(i)), "0");
  machine.reset();
  EXPECT_EQ(guest_->fsck({"image.ext4", "layer-3"}), "") << "everything is in the top layer now";
}

TEST_F(Guest, ADiskGrowsUnderARunningGuest) {
  const auto machine = from_base("grow");
  ASSERT_TRUE(machine);
  ASSERT_TRUE(machine->grow_disk(1ULL << 30, soon()));
  EXPECT_EQ(tell(*machine, "disk"), std::to_string(1ULL << 30));
}

TEST_F(Guest, AKilledMachineLeavesADiskThatAJournalReplayMends) {
  for (int round = 0; round < 3; ++round) {
    const std::string name = "killed-" + std::to_string(round);
    const auto machine = from_base(name);
    ASSERT_TRUE(machine);
    EXPECT_EQ(tell(*machine, "write /root/synced 1 4"), "0");
    EXPECT_EQ(tell(*machine, "load on"), "ok");
    guest_->loop()
        .run_until([] { return false; }, Clock::now() + milliseconds(100 + round * 70))
        .value_or(false);
    machine->kill();
    EXPECT_THAT(wait_for_end(*machine).reason, HasSubstr("killed by signal 9"));
    EXPECT_EQ(guest_->fsck({"image.ext4", "base.qcow2", name}), "");
  }
}

TEST_F(Guest, ARebootEndsTheMachineAndIsCalledSo) {
  const auto machine = from_base("reboot");
  ASSERT_TRUE(machine);
  ASSERT_GT(::write(machine->control_fd(), "reboot\n", 7), 0);
  const auto end = wait_for_end(*machine);
  EXPECT_TRUE(end.guest_reset);
  EXPECT_THAT(end.reason, HasSubstr("restarted itself"));
}

TEST_F(Guest, AKernelPanicIsNamed) {
  const auto machine = from_base("panic");
  ASSERT_TRUE(machine);
  ASSERT_GT(::write(machine->control_fd(), "panic\n", 6), 0);
  const auto end = wait_for_end(*machine);
  EXPECT_THAT(end.reason, HasSubstr("Kernel panic"));
  EXPECT_THAT(machine->console_tail(), HasSubstr("Kernel panic"));
}

TEST_F(Guest, StateThatIsNotOneIsRefusedAsIncompatible) {
  auto broken = base_;
  broken.state = "broken-state";
  const auto file = guest_->open_file(broken.state, O_WRONLY | O_CREAT | O_TRUNC);
  ASSERT_TRUE(write_all(file->get(), std::string(5000, 'x')));
  const auto machine = guest_->restore({"image.ext4", "base.qcow2", "broken"}, &broken);
  ASSERT_FALSE(machine);
  EXPECT_THAT(machine.error().code, ::testing::AnyOf(ErrorCode::kMemoryIncompatible, ErrorCode::kVmLost));
}

TEST_F(Guest, TheHypervisorRunsConfined) {
  const auto machine = from_base("confined");
  ASSERT_TRUE(machine);
  const auto missing = probe_confinement();
  ASSERT_TRUE(missing);
  EXPECT_EQ(machine->confinement_missing(), *missing);
  const auto status = read_file(AT_FDCWD, "/proc/" + std::to_string(machine->pid()) + "/status", 65536);
  ASSERT_TRUE(status);
  EXPECT_THAT(*status, HasSubstr("NoNewPrivs:\t1"));
  EXPECT_THAT(*status, HasSubstr("CapEff:\t0000000000000000"));
  EXPECT_THAT(*status, HasSubstr("Seccomp:\t2"));
  const auto oom = read_file(AT_FDCWD, "/proc/" + std::to_string(machine->pid()) + "/oom_score_adj", 64);
  EXPECT_EQ(oom.value_or(""), "900\n");
}

}  // namespace
}  // namespace drupe
