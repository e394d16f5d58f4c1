#include "engine/mend.h"

#include "engine/testing/temp_home.h"

namespace drupe {
namespace {

using MendTest = TempHome;

TEST_F(MendTest, ARunningSandboxWithoutAHolderLostItsMachine) {
  auto record = make_sandbox("web", SandboxState::kRunning);
  record.disk_chain = {kImageFile, "disk-1.qcow2"};
  record.base_ram_file = "base.ram";
  record.saved = SavedState();
  write(record);
  const std::string dir = Home::sandbox(record.id) + "/";
  for (const char* name : {"disk-1.qcow2", "base.ram", "delta-7", kSocketFile, "log"})
    ASSERT_TRUE(replace_file(home().dir(), dir + name, "x", Sync::kNo));
  const auto mended = mend_sandbox(home(), record.id);
  ASSERT_TRUE(mended) << mended.error().message;
  EXPECT_EQ(mended->what, Mended::kVmLost);
  EXPECT_FALSE(mended->alive);
  EXPECT_NE(mended->note.find("web"), std::string::npos);
  ASSERT_TRUE(mended->record);
  EXPECT_EQ(mended->record->state, SandboxState::kExited);
  EXPECT_EQ(mended->record->cause, EndCause::kVmLost);
  EXPECT_GT(mended->record->finished_ns, 0);
  EXPECT_TRUE(exists(dir + "disk-1.qcow2"));
  EXPECT_TRUE(exists(dir + "log"));
  for (const char* name : {"base.ram", "delta-7", kSocketFile}) EXPECT_FALSE(exists(dir + name)) << name;
  // The repair is on disk, and there is nothing more to repair.
  const auto again = mend_sandbox(home(), record.id);
  ASSERT_TRUE(again);
  EXPECT_EQ(again->what, Mended::kNothing);
  EXPECT_EQ(again->record->cause, EndCause::kVmLost);
}

TEST_F(MendTest, ALiveSandboxIsLeftAlone) {
  const auto record = make_sandbox("web", SandboxState::kRunning);
  const auto lock = lock_sandbox(record.id);
  const auto mended = mend_sandbox(home(), record.id);
  ASSERT_TRUE(mended);
  EXPECT_TRUE(mended->alive);
  EXPECT_EQ(mended->what, Mended::kNothing);
  EXPECT_EQ(mended->record->state, SandboxState::kRunning);
}

TEST_F(MendTest, PausedAndExitedOnesStayAsTheyAre) {
  for (const auto state : {SandboxState::kPaused, SandboxState::kExited, SandboxState::kCreated}) {
    const auto record = make_sandbox("s" + std::to_string(static_cast<int>(state)), state);
    const auto mended = mend_sandbox(home(), record.id);
    ASSERT_TRUE(mended);
    EXPECT_EQ(mended->what, Mended::kNothing);
    EXPECT_EQ(mended->record->state, state);
  }
}

TEST_F(MendTest, OnesThatWereToGoAreRemovedWithTheirNames) {
  auto finished = make_sandbox("finished", SandboxState::kExited);
  finished.auto_remove = true;
  write(finished);
  auto never_started = make_sandbox("never", SandboxState::kCreated);
  never_started.auto_remove = true;
  write(never_started);
  auto lost = make_sandbox("lost", SandboxState::kRunning);
  lost.auto_remove = true;
  write(lost);
  auto half_forked = make_sandbox("child", SandboxState::kCreated);
  half_forked.parent_id = finished.id;
  half_forked.detached = true;
  write(half_forked);
  for (const auto& record : {finished, never_started, lost, half_forked}) {
    const auto mended = mend_sandbox(home(), record.id);
    ASSERT_TRUE(mended);
    EXPECT_EQ(mended->what, Mended::kRemoved) << record.name;
    EXPECT_FALSE(mended->record);
    EXPECT_FALSE(exists(Home::sandbox(record.id)));
    EXPECT_FALSE(exists("names/" + record.name));
  }
}

TEST_F(MendTest, OneThatRemovesItselfIsLeftToItsShimAndShownToNobody) {
  auto record = make_sandbox("finished", SandboxState::kExited);
  record.auto_remove = true;
  write(record);
  const auto lock = lock_sandbox(record.id);
  const auto mended = mend_sandbox(home(), record.id);
  ASSERT_FALSE(mended);
  EXPECT_EQ(mended.error().code, ErrorCode::kNotFound);
  EXPECT_TRUE(exists(Home::sandbox(record.id)));
}

TEST_F(MendTest, ADetachedOneMayWaitForItsStart) {
  auto record = make_sandbox("later", SandboxState::kCreated);
  record.auto_remove = true;
  record.detached = true;
  write(record);
  EXPECT_EQ(mend_sandbox(home(), record.id)->what, Mended::kNothing);
}

// A taken-over shim can write its own record; paths are made from ids.
TEST_F(MendTest, ARecordThatNamesAnotherSandboxLeadsNowhere) {
  const auto other = make_sandbox("other", SandboxState::kExited);
  const auto dir = make_dir_at(home().dir(), "precious");
  ASSERT_TRUE(dir);
  const auto victim = make_sandbox("web", SandboxState::kExited);
  for (const std::string& id : {other.id, std::string("../precious")}) {
    auto record = victim;
    record.auto_remove = true;
    record.id = id;
    const auto place = home().open_sandbox(victim.id);
    ASSERT_TRUE(write_record(place->get(), record));
    const auto mended = mend_sandbox(home(), victim.id);
    ASSERT_FALSE(mended);
    EXPECT_EQ(mended.error().code, ErrorCode::kIntegrity);
    EXPECT_TRUE(exists(Home::sandbox(other.id)));
    EXPECT_TRUE(exists("precious"));
  }
}

TEST_F(MendTest, ADamagedRecordNamesItsSandbox) {
  const auto record = make_sandbox("web", SandboxState::kExited);
  ASSERT_TRUE(replace_file(home().dir(), Home::sandbox(record.id) + "/" + kRecordFile, "{", Sync::kNo));
  const auto mended = mend_sandbox(home(), record.id);
  ASSERT_FALSE(mended);
  EXPECT_NE(mended.error().message.find(record.id), std::string::npos);
  EXPECT_NE(mended.error().next_step.find("rm -f"), std::string::npos);
  EXPECT_EQ(mend_sandbox(home(), "0123456789ab").error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace drupe
