// Children of a fork that are started before their parent is saved, with a machine that is played.
#include <fcntl.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shim/testing/sandbox_fixture.h"

namespace drupe {
namespace {

using ::testing::Contains;
using testing::SandboxFixture;

class ForkChild : public SandboxFixture {
 protected:
  void SetUp() override {
    SandboxFixture::SetUp();
    int ends[2];
    ASSERT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    reading_ = UniqueFd(ends[0]);
    pipe_ = UniqueFd(ends[1]);
    fork_ = reading_.get();
    spec_.awaits_fork = true;
    record_.base_ram_file = "ram";
  }
  void tell(char byte) { ASSERT_EQ(::write(pipe_.get(), &byte, 1), 1); }
  /// What the engine does when the parent is saved.
  void save() {
    use_saved();
    ASSERT_TRUE(write_record(dir_.get(), record_));
    tell(kForkSaved);
  }
  UniqueFd reading_, pipe_;
};

TEST_F(ForkChild, LoadsTheSaveIntoTheMachineThatWaitsAndRunsWhenItMay) {
  loop_->after(std::chrono::milliseconds(0), [this] {
    EXPECT_THAT(world_.calls, Contains("prepare"));
    save();
  });
  world_.on_restore = [this] {
    agent().on_request = [this](RequestKind kind) {
      // Everything else is done; work stands still until the parent is out of the way.
      if (kind == RequestKind::kSetUp)
        loop_->after(std::chrono::milliseconds(50), [this] {
          EXPECT_EQ(agent().count(RequestKind::kThaw), 0U);
          tell(kForkMayRun);
        });
    };
  };
  start(LaunchMode::kForkChild);
  EXPECT_EQ(world_.launches, 0);
  EXPECT_EQ(placings_, 1);
  EXPECT_EQ(agent().count(RequestKind::kThaw), 1U);
  EXPECT_EQ(on_disk().state, SandboxState::kRunning);
  EXPECT_TRUE(ping(*client_));
}

TEST_F(ForkChild, EndsWithTheForkBeforeAnythingRuns) {
  loop_->after(std::chrono::milliseconds(0), [this] { pipe_.reset(); });
  const auto before = try_start(LaunchMode::kForkChild);
  ASSERT_FALSE(before);
  EXPECT_EQ(before.error().code, ErrorCode::kCancelled);
  EXPECT_EQ(world_.launches, 0);
}

TEST_F(ForkChild, EndsWithAForkThatFailsAfterTheSave) {
  loop_->after(std::chrono::milliseconds(0), [this] { save(); });
  std::size_t thaws = 0;
  world_.on_restore = [&] {
    agent().on_request = [&](RequestKind kind) {
      if (kind == RequestKind::kSetUp) pipe_.reset();
      if (kind == RequestKind::kThaw) ++thaws;
    };
  };
  EXPECT_FALSE(try_start(LaunchMode::kForkChild));
  EXPECT_EQ(thaws, 0U);
  EXPECT_EQ(on_disk().state, SandboxState::kCreated);
}

TEST_F(ForkChild, StartsAnewWhenItsDiskHasChangedMeanwhile) {
  loop_->after(std::chrono::milliseconds(0), [this] {
    const auto node = open_at(dir_.get(), "disk-5.qcow2", O_RDWR | O_CREAT);
    ASSERT_TRUE(node && write_empty_qcow2(node->get(), 1 << 30));
    record_.disk_chain.insert(record_.disk_chain.begin() + 1, "disk-5.qcow2");
    save();
    tell(kForkMayRun);
  });
  start(LaunchMode::kForkChild);
  EXPECT_EQ(world_.launches, 1);
  EXPECT_EQ(world_.disk_nodes, 3U);
  EXPECT_TRUE(ping(*client_));
}

}  // namespace
}  // namespace drupe
