#include "engine/admission.h"

#include <atomic>
#include <thread>

#include "engine/testing/temp_home.h"

namespace drupe {
namespace {

using AdmissionTest = TempHome;

TEST(AdmissionRule, KeepsAnEighthOfEveryPromiseFree) {
  const MemoryRoom room{8192, 1000};
  // 512/8 + 32 + 256 = 352 of 1000.
  EXPECT_TRUE(admit_memory(room, {}, 512));
  // (n*512)/8 + n*32 + 256 <= 1000 holds for 7 sandboxes, not for 8.
  EXPECT_TRUE(admit_memory(room, {6, 6 * 512}, 512));
  const auto refused = admit_memory(room, {7, 7 * 512}, 512);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kLimit);
  EXPECT_NE(refused.error().message.find("1000 MiB are available"), std::string::npos);
  EXPECT_FALSE(refused.error().next_step.empty());
}

TEST(AdmissionRule, OneThatCannotFitIsRefusedWhateverIsFree) {
  const auto refused = admit_memory({4096, 4096}, {}, 8192);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message.find("does not fit this machine"), std::string::npos);
}

TEST(AdmissionRule, ThisMachineSaysHowMuchItHas) {
  const auto room = memory_room();
  ASSERT_TRUE(room);
  EXPECT_GT(room->total_mib, 0U);
  EXPECT_LE(room->available_mib, room->total_mib);
}

TEST_F(AdmissionTest, PromisesAreCountedAndReleased) {
  const auto record = make_sandbox("a", SandboxState::kRunning);
  const auto lock = lock_sandbox(record.id);
  ASSERT_TRUE(promise_memory(home(), record.id, 256));
  EXPECT_EQ(promised_memory(home(), true)->mib, 256U);
  release_promise(home(), record.id, 256);
  EXPECT_EQ(promised_memory(home(), false)->sandboxes, 0U);
}

TEST_F(AdmissionTest, APromiseOfADeadSandboxIsForgottenWhenItMatters) {
  const auto record = make_sandbox("a", SandboxState::kRunning);
  ASSERT_TRUE(promise_memory(home(), record.id, 256));
  EXPECT_EQ(promised_memory(home(), false)->sandboxes, 1U);
  EXPECT_EQ(promised_memory(home(), true)->sandboxes, 0U);
  EXPECT_TRUE(home().names_in("promised")->empty());
}

TEST_F(AdmissionTest, ARefusedPromiseLeavesNothing) {
  const auto record = make_sandbox("a", SandboxState::kCreated);
  EXPECT_EQ(promise_memory(home(), record.id, std::uint64_t{1} << 29).error().code, ErrorCode::kLimit);
  EXPECT_TRUE(home().names_in("promised")->empty());
}

TEST_F(AdmissionTest, ForeignEntriesAreIgnored) {
  for (const char* name : {"promised/x", "promised/0123456789ab", "promised/0123456789ab.many"})
    ASSERT_TRUE(replace_file(home().dir(), name, "", Sync::kNo));
  EXPECT_EQ(promised_memory(home(), false)->sandboxes, 0U);
}

TEST_F(AdmissionTest, DiskRoom) {
  EXPECT_TRUE(check_disk_room(home(), 4096));
  const auto refused = check_disk_room(home(), ~std::uint64_t{0} / 2);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kLimit);
}

TEST_F(AdmissionTest, SlotsAreAsManyAsCores) {
  std::vector<StartSlot> slots;
  for (std::uint32_t i = 0; i < StartSlot::count(); ++i) {
    auto slot = StartSlot::take(home(), Clock::now() + std::chrono::seconds(5));
    ASSERT_TRUE(slot);
    slots.push_back(std::move(*slot));
  }
  EXPECT_FALSE(StartSlot::try_take(home())->valid());
  EXPECT_EQ(StartSlot::take(home(), Clock::now() + std::chrono::milliseconds(20)).error().code,
            ErrorCode::kBusy);
  slots.pop_back();
  EXPECT_TRUE(StartSlot::try_take(home())->valid());
}

TEST_F(AdmissionTest, NeverMoreAtOnceThanSlotsAndNobodyStarves) {
  std::atomic<int> inside = 0;
  std::atomic<int> most = 0;
  std::atomic<int> served = 0;
  std::vector<std::thread> threads;
  for (int i = 0; i < 12; ++i)
    threads.emplace_back([&] {
      const auto slot = StartSlot::take(home(), Clock::now() + std::chrono::seconds(30));
      if (!slot) return;
      const int now = ++inside;
      int seen = most;
      while (seen < now && !most.compare_exchange_weak(seen, now)) {
      }
      std::this_thread::yield();
      --inside;
      ++served;
    });
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(served, 12);
  EXPECT_LE(most, static_cast<int>(StartSlot::count()));
  const auto left = home().names_in("locks");  // named: a loop does not keep a temporary Result alive
  ASSERT_TRUE(left);
  for (const std::string& name : *left) EXPECT_FALSE(name.starts_with("ticket-")) << name;
}

}  // namespace
}  // namespace drupe
