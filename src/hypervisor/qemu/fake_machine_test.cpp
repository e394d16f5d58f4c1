// The driver against hypervisors that break the protocol or have been taken over.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hypervisor/qemu/testing/test_guest.h"

namespace drupe {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TestGuest;

class FakeMachine : public ::testing::Test {
 protected:
  void SetUp() override {
    auto guest = TestGuest::create_fake();
    ASSERT_TRUE(guest) << to_string(guest.error());
    guest_ = std::move(*guest);
  }

  Result<std::unique_ptr<Machine>> launch(const std::string& mode,
                                          milliseconds limit = milliseconds(20'000)) {
    DRUPE_TRY(guest_->use_fake(mode));
    DRUPE_ASSIGN(auto spec, guest_->spec(disk_, nullptr, nullptr));
    return guest_->launch(std::move(spec), limit);
  }

  std::unique_ptr<TestGuest> guest_;
  std::vector<std::string> disk_{"image.ext4", "top.qcow2"};
};

TEST_F(FakeMachine, OneThatEndsAtOnceIsReportedWithItsLastWords) {
  const auto machine = launch("exit");
  ASSERT_FALSE(machine);
  EXPECT_EQ(machine.error().code, ErrorCode::kVmLost);
  EXPECT_THAT(machine.error().message, HasSubstr("cannot do anything today"));
}

TEST_F(FakeMachine, OneThatSaysNothingCostsTheDeadlineAndNoMore) {
  const auto start = Clock::now();
  const auto machine = launch("silent", milliseconds(300));
  ASSERT_FALSE(machine);
  EXPECT_EQ(machine.error().code, ErrorCode::kTimeout);
  EXPECT_LT(Clock::now() - start, milliseconds(5000));
}

TEST_F(FakeMachine, OneThatDoesNotAnswerCommandsCostsTheDeadline) {
  const auto machine = launch("deaf", milliseconds(500));
  ASSERT_FALSE(machine);
  EXPECT_EQ(machine.error().code, ErrorCode::kTimeout);
}

TEST_F(FakeMachine, OneThatOnlySendsEventsCostsTheDeadline) {
  const auto machine = launch("flood", milliseconds(500));
  ASSERT_FALSE(machine);
  EXPECT_EQ(machine.error().code, ErrorCode::kTimeout);
}

TEST_F(FakeMachine, MalformedAndEndlessRepliesEndTheMachine) {
  for (const char* mode : {"garbage", "endless"}) {
    const auto machine = launch(mode);
    ASSERT_FALSE(machine) << mode;
    EXPECT_EQ(machine.error().code, ErrorCode::kGuest) << mode;
  }
}

TEST_F(FakeMachine, AnAddressThatCannotBeIsRefused) {
  for (const char* mode : {"liar", "shortreport"}) {
    const auto machine = launch(mode);
    ASSERT_FALSE(machine) << mode;
    EXPECT_EQ(machine.error().code, ErrorCode::kVmLost) << mode;
  }
}

TEST_F(FakeMachine, OneThatClaimsToHaveSavedSavesNothingOfOthers) {
  auto machine = launch("obedient");
  ASSERT_TRUE(machine) << to_string(machine.error());
  ASSERT_TRUE((*machine)->stop(Clock::now() + milliseconds(2000)));
  const auto saved = guest_->save(**machine, SaveForm::kDelta);
  EXPECT_EQ(saved ? saved->bytes : 0, 0U);
}

TEST_F(FakeMachine, OneThatSaysTwiceThatItsLayersAreJoinedIsHeardOnce) {
  for (const char* layer : {"one.qcow2", "two.qcow2"})
    ASSERT_TRUE(guest_->spec({"image.ext4", layer}, nullptr, nullptr));
  disk_ = {"image.ext4", "one.qcow2", "two.qcow2", "top.qcow2"};
  for (const char* mode : {"obedient", "impatient"}) {
    auto machine = launch(mode);
    ASSERT_TRUE(machine) << to_string(machine.error());
    int ends = 0;
    (*machine)->flatten_disk([&ends](const Status& done) {
      EXPECT_TRUE(done);
      ++ends;
    });
    const auto soon = [] { return Clock::now() + milliseconds(5000); };
    ASSERT_TRUE(guest_->loop().run_until([&ends] { return ends > 0; }, soon()).value_or(false)) << mode;
    ASSERT_TRUE((*machine)->drop_flattened(soon()));
    ASSERT_TRUE((*machine)->drop_flattened(soon())) << "there is nothing left to do";
    ASSERT_TRUE((*machine)->stop(soon()));
    EXPECT_EQ(ends, 1) << mode;
    // The short chain has nothing to join.
    (*machine)->flatten_disk([&ends](const Status&) { ++ends; });
    ASSERT_TRUE(guest_->loop().run_until([&ends] { return ends > 1; }, soon()).value_or(false));
  }
}

TEST_F(FakeMachine, OneThatDoesNotTakeItsSavedMemoryIsLost) {
  ASSERT_TRUE(guest_->use_fake("obedient"));
  auto machine = guest_->prepare({"image.ext4", "top.qcow2"}, nullptr);
  ASSERT_TRUE(machine) << to_string(machine.error());
  const auto saved = [this] {
    SavedMachine files;
    for (UniqueFd* fd : {&files.device_state, &files.delta}) *fd = *guest_->open_file("image.ext4", O_RDONLY);
    return files;
  };
  auto outside = saved();
  outside.extents = {MemoryExtent{0, 0, 4096}};
  EXPECT_EQ((*machine)->restore(std::move(outside), Clock::now() + milliseconds(2000)).error().code,
            ErrorCode::kIntegrity);
  const auto restored = (*machine)->restore(saved(), Clock::now() + milliseconds(2000));
  ASSERT_FALSE(restored);
  EXPECT_EQ(restored.error().code, ErrorCode::kVmLost);
}

TEST_F(FakeMachine, OneThatWasTakenOverReachesNothing) {
  auto machine = launch("attack");
  ASSERT_TRUE(machine) << to_string(machine.error());
  const auto done = [&machine] { return (*machine)->console_tail().find("end\n") != std::string::npos; };
  ASSERT_TRUE(guest_->loop().run_until(done, Clock::now() + milliseconds(5000)).value_or(false));
  const std::string tail = (*machine)->console_tail();
  EXPECT_THAT(tail, HasSubstr("write-base=no"));
  EXPECT_THAT(tail, Not(HasSubstr("=yes"))) << tail;
}

TEST_F(FakeMachine, KillingItIsReportedOnce) {
  auto machine = launch("obedient");
  ASSERT_TRUE(machine) << to_string(machine.error());
  int ends = 0;
  std::string reason;
  (*machine)->on_end([&](const MachineEnd& end) {
    ++ends;
    reason = end.reason;
  });
  (*machine)->kill();
  ASSERT_TRUE(guest_->loop()
                  .run_until([&ends] { return ends > 0; }, Clock::now() + milliseconds(5000))
                  .value_or(false));
  EXPECT_THAT(reason, HasSubstr("killed by signal 9"));
  const auto stopped = (*machine)->stop(Clock::now() + milliseconds(2000));
  ASSERT_FALSE(stopped);
  EXPECT_EQ(stopped.error().code, ErrorCode::kVmLost);
  EXPECT_EQ(ends, 1);
}

TEST_F(FakeMachine, FilesThatDoNotFitAreRefusedBeforeAnythingStarts) {
  ASSERT_TRUE(guest_->use_fake("obedient"));
  const auto spec = [this] { return guest_->spec({"image.ext4", "top.qcow2"}, nullptr, nullptr); };
  const auto refused = [this](LaunchSpec broken) {
    const auto machine = guest_->launch(std::move(broken), milliseconds(2000));
    return machine ? std::string("it started") : std::string(to_string(machine.error().code));
  };
  auto wrong_size = spec();
  ASSERT_TRUE(wrong_size);
  wrong_size->shape.memory_mib = 512;
  EXPECT_EQ(refused(std::move(*wrong_size)), "integrity");
  auto odd_shape = spec();
  odd_shape->shape.memory_mib = 300;
  EXPECT_EQ(refused(std::move(*odd_shape)), "invalid_argument");
  auto writable_image = spec();
  writable_image->disk[0].fd = *guest_->open_file("image.ext4", O_RDWR);
  EXPECT_EQ(refused(std::move(*writable_image)), "invalid_argument");
  auto no_disk = spec();
  no_disk->disk.clear();
  EXPECT_EQ(refused(std::move(*no_disk)), "invalid_argument");
  auto extents_without_delta = spec();
  extents_without_delta->memory.extents = {MemoryExtent{0, 0, 4096}};
  EXPECT_EQ(refused(std::move(*extents_without_delta)), "integrity");
}

}  // namespace
}  // namespace drupe
