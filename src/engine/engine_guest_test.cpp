// The engine's operations on real guests.
#include <algorithm>

#include <gmock/gmock.h>

#include "engine/pool.h"
#include "engine/testing/guest_engine.h"

namespace drupe {
namespace {

using testing::HasSubstr;
using EngineGuest = GuestEngineTest;

TEST_F(EngineGuest, ASecondSandboxStartsFromTheBaseSnapshot) {
  const auto first = make_sandbox("first");
  const auto second = make_sandbox("second");
  EXPECT_EQ(sh(first, "hostname"), first + "\n");
  EXPECT_EQ(sh(second, "hostname"), second + "\n");
  EXPECT_NE(sh(first, "cat /etc/machine-id"), sh(second, "cat /etc/machine-id"));
  EXPECT_NE(sh(first, "cat /proc/sys/kernel/random/boot_id"),
            sh(second, "cat /proc/sys/kernel/random/boot_id"));
  sh(first, "echo one > /root/mine");
  EXPECT_EQ(sh(second, "ls /root"), "");
  EXPECT_TRUE(std::ranges::any_of(engine().timings().stages,
                                  [](const auto& stage) { return stage.first == "shim setup"; }));
}

TEST_F(EngineGuest, PauseAndResumeKeepProcessesAndDisk) {
  const auto id = make_sandbox("box");
  sh(id, "echo kept > /root/file; sleep 1000 >/dev/null 2>&1 & echo $! > /root/pid");
  ASSERT_TRUE(engine().pause(id));
  EXPECT_EQ(state(id), "paused");
  EXPECT_FALSE(engine().pause(id));
  ASSERT_TRUE(engine().resume(id, false));
  EXPECT_EQ(state(id), "running");
  EXPECT_EQ(sh(id, "cat /root/file; kill -0 $(cat /root/pid) && echo alive"), "kept\nalive\n");
  ASSERT_TRUE(engine().pause(id));
  // A command on a paused sandbox lets it go on and says so.
  EXPECT_EQ(sh(id, "cat /root/file"), "kept\n");
  EXPECT_THAT(notes_, testing::Contains(HasSubstr("paused")));
}

TEST_F(EngineGuest, ForksShareNothingTheyWrite) {
  const auto parent = make_sandbox("parent");
  sh(parent, "echo common > /root/file");
  const auto children = engine().fork(parent, 2, {"left", "right"});
  ASSERT_TRUE(children) << to_string(children.error());
  ASSERT_EQ(children->size(), 2U);
  const auto left = children->front().record.id;
  const auto right = children->back().record.id;
  sh(left, "echo left >> /root/file");
  EXPECT_EQ(sh(right, "cat /root/file; hostname"), "common\n" + right + "\n");
  EXPECT_EQ(sh(parent, "cat /root/file"), "common\n");
  EXPECT_EQ(sh(left, "cat /root/file"), "common\nleft\n");
  // Of a paused one too, and it stays paused.
  ASSERT_TRUE(engine().pause(left));
  const auto grandchildren = engine().fork(left, 1, {});
  ASSERT_TRUE(grandchildren) << to_string(grandchildren.error());
  EXPECT_EQ(sh(grandchildren->front().record.id, "cat /root/file"), "common\nleft\n");
  EXPECT_EQ(state(left), "paused");
  // With rules and timers of their own from the first moment.
  ForkOptions own;
  own.network.emplace();
  own.network->mode = NetworkMode::kPolicy;
  own.network->allow = {"203.0.113.9"};
  own.idle_timeout_ms = 77'000;
  const auto different = engine().fork(left, 1, {}, own);
  ASSERT_TRUE(different) << to_string(different.error());
  const auto record = engine().find(different->front().record.id)->record;
  EXPECT_EQ(record.network.mode, NetworkMode::kPolicy);
  EXPECT_EQ(record.network.allow.front().text, "203.0.113.9");
  EXPECT_EQ(record.idle_timeout_ms, 77'000U);
  own.network->publish = {"8080:80"};
  EXPECT_FALSE(engine().fork(left, 1, {}, own));
  // Names that are taken leave nothing behind.
  const auto taken = engine().fork(parent, 2, {"new", "right"});
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::kAlreadyExists);
  EXPECT_EQ(engine().find("new").error().code, ErrorCode::kNotFound);
}

TEST_F(EngineGuest, AKilledSupervisorLosesMemoryNotTheDisk) {
  auto options = sandbox_options();
  options.detached = true;
  options.name = "box";
  const auto made = engine().create(options);
  ASSERT_TRUE(made);
  const auto id = made->record.id;
  ASSERT_TRUE(engine().start(id, false, false));
  sh(id, "echo kept > /root/file; sync");
  kill_shim(id);
  EXPECT_EQ(state(id), "exited vm_lost");
  EXPECT_THAT(notes_, testing::Contains(HasSubstr("lost its machine")));
  EXPECT_EQ(engine().connect(id, true).error().code, ErrorCode::kInvalidState);
  ASSERT_TRUE(engine().start(id, false, false));
  EXPECT_EQ(sh(id, "cat /root/file"), "kept\n");
  ASSERT_TRUE(engine().stop(id, 0, std::chrono::seconds(5)));
  EXPECT_EQ(state(id), "exited stopped");
  EXPECT_TRUE(engine().stop(id, 0, std::chrono::seconds(5)));
}

TEST_F(EngineGuest, MemoryThatDoesNotFitIsKeptAndTheDiskBoots) {
  const auto id = make_sandbox("box");
  sh(id, "echo kept > /root/file; sync");
  ASSERT_TRUE(engine().pause(id));
  const auto dir = engine().open_directory(id);
  ASSERT_TRUE(dir);
  auto record = read_record(dir->get());
  ASSERT_TRUE(record);
  const std::string fitting = record->state_key;
  record->state_key = "another hypervisor";
  ASSERT_TRUE(write_record(dir->get(), *record));
  const auto resumed = engine().resume(id, false);
  ASSERT_FALSE(resumed);
  EXPECT_EQ(resumed.error().code, ErrorCode::kMemoryIncompatible);
  EXPECT_THAT(resumed.error().next_step, HasSubstr("--cold"));
  EXPECT_EQ(state(id), "paused");
  ASSERT_TRUE(engine().resume(id, true));
  EXPECT_EQ(sh(id, "cat /root/file"), "kept\n");
}

TEST_F(EngineGuest, NamesAreUniqueAndCanChange) {
  const auto id = make_sandbox("one");
  auto options = sandbox_options();
  options.name = "one";
  const auto taken = engine().create(options);
  ASSERT_FALSE(taken);
  EXPECT_EQ(taken.error().code, ErrorCode::kAlreadyExists);
  ASSERT_TRUE(engine().rename(id, "two"));
  EXPECT_EQ(engine().find("one").error().code, ErrorCode::kNotFound);
  EXPECT_EQ(engine().find("two")->record.id, id);
  EXPECT_EQ(engine().find("tw")->record.name, "two");
  ASSERT_TRUE(engine().pause(id));
  ASSERT_TRUE(engine().rename(id, "three"));
  EXPECT_EQ(engine().find("three")->record.id, id);
}

TEST_F(EngineGuest, WhatAnEndedEngineOwnedGoesWithIt) {
  auto options = sandbox_options();
  options.auto_remove = true;
  std::string id;
  {
    auto other = Engine::open(engine_options());
    ASSERT_TRUE(other);
    const auto made = (*other)->create(options);
    ASSERT_TRUE(made);
    id = made->record.id;
    EXPECT_TRUE(engine().find(id));
  }
  EXPECT_EQ(engine().find(id).error().code, ErrorCode::kNotFound);
}

TEST_F(EngineGuest, RunningOnesAreRemovedOnlyByForce) {
  const auto id = make_sandbox("box");
  const auto refused = engine().remove(id, false);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kInvalidState);
  EXPECT_TRUE(engine().remove(id, true));
  EXPECT_EQ(engine().find(id).error().code, ErrorCode::kNotFound);
}

TEST_F(EngineGuest, ThePoolHandsOutReadySandboxes) {
  PoolOptions options;
  options.image = kImage;
  options.memory_mib = 256;
  options.size = 1;
  options.exercises = {{"true"}};
  auto pool = Pool::create(engine_options(), options);
  ASSERT_TRUE(pool) << pool.error().message;
  ASSERT_TRUE((*pool)->wait_ready(1, Clock::now() + std::chrono::minutes(2))) << (*pool)->status().last_error;
  auto wanted = sandbox_options();
  wanted.name = "claimed";
  wanted.env = {"WHO=me"};
  wanted.hostname = "mine";
  auto claim = (*pool)->claim(engine(), wanted);
  ASSERT_TRUE(claim) << to_string(claim.error());
  const auto id = claim->sandbox.record.id;
  EXPECT_EQ(engine().find("claimed")->record.id, id);
  EXPECT_EQ(sh(id, "echo $WHO; hostname"), "me\nmine\n");
  EXPECT_EQ((*pool)->status().claimed, 1U);
  // The place is filled again; another shape is refused.
  EXPECT_TRUE((*pool)->wait_ready(1, Clock::now() + std::chrono::minutes(2)));
  wanted.memory_mib = 512;
  EXPECT_EQ((*pool)->claim(engine(), wanted).error().code, ErrorCode::kInvalidArgument);
}

}  // namespace
}  // namespace drupe
