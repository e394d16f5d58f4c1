// A real shim with a real guest: start, commands, end; pause and resume; kills. Forks: fork_guest_test.cpp.
#include "shim/testing/shim_guest.h"

#include <csignal>

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shim/log_file.h"

namespace drupe {
namespace {

using testing::attach;
using testing::Attached;
using ::testing::HasSubstr;
using testing::hypervisor_pid;
using testing::kPause;
using testing::kSnapshot;
using testing::kStop;
using testing::ShimGuest;
using testing::ShimProcess;
using testing::soon;

TEST_F(ShimGuest, BootsRunsCommandsAndStops) {
  auto shim = ShimProcess::create(*loop_);
  ASSERT_TRUE(shim);
  must_start(**shim, LaunchMode::kBoot);
  EXPECT_TRUE((*shim)->alive());
  EXPECT_EQ((*shim)->read()->state, SandboxState::kRunning);
  auto client = (*shim)->connect();
  ASSERT_TRUE(client) << client.error().message;
  const auto ran = (*shim)->shell(**client, "echo out; echo err >&2; hostname; exit 7");
  ASSERT_TRUE(ran) << ran.error().message;
  EXPECT_EQ(ran->facts.exit_code, 7);
  EXPECT_EQ(ran->out, "out\ntester\n");
  EXPECT_EQ(ran->err, "err\n");
  ASSERT_TRUE((*shim)->shell(**client, "echo kept > /kept; sync"));
  ASSERT_TRUE((*client)->call(kStop, StopRequest{}.encode(), soon()));
  EXPECT_EQ((*shim)->wait().value_or(-1), 0);
  const auto record = (*shim)->read();
  ASSERT_TRUE(record);
  EXPECT_EQ(record->state, SandboxState::kExited);
  EXPECT_EQ(record->cause, EndCause::kStopped);
  EXPECT_FALSE((*shim)->has(kSocketFile));

  (*shim)->record = *record;
  must_start(**shim, LaunchMode::kBoot);
  client = (*shim)->connect();
  ASSERT_TRUE(client);
  EXPECT_EQ((*shim)->shell(**client, "cat /kept")->out, "kept\n");
}

TEST_F(ShimGuest, StartsFromABaseWithAnIdentityOfItsOwn) {
  auto one = from_base();
  auto two = from_base();
  one->record.hostname = "one";
  must_start(*one, LaunchMode::kFromBase);
  must_start(*two, LaunchMode::kFromBase);
  auto first = one->connect();
  auto second = two->connect();
  ASSERT_TRUE(first && second);
  const std::string line =
      "hostname; cat /etc/machine-id /proc/sys/kernel/random/boot_id; head -c 8 /dev/urandom | od -An -tx1";
  const auto a = one->shell(**first, line);
  const auto b = two->shell(**second, line);
  ASSERT_TRUE(a && b);
  EXPECT_EQ(a->out.substr(0, 4), "one\n");
  EXPECT_EQ(b->out.substr(0, 7), "tester\n");
  EXPECT_NE(a->out.substr(4), b->out.substr(7));
  EXPECT_FALSE(one->read()->saved);
  EXPECT_FALSE(one->has(kBaseStateFile));
}

TEST_F(ShimGuest, TheMainCommandIsLoggedAndEndsTheSandbox) {
  auto shim = from_base({"/bin/sh", "-c", "echo hello; echo bad >&2; exit 5"});
  must_start(*shim, LaunchMode::kFromBase);
  EXPECT_EQ(shim->wait().value_or(-1), 0);
  const auto record = shim->read();
  ASSERT_TRUE(record);
  EXPECT_EQ(record->state, SandboxState::kExited);
  EXPECT_EQ(record->cause, EndCause::kFinished);
  ASSERT_TRUE(record->main_exit);
  EXPECT_EQ(record->main_exit->exit_code, 5);
  std::uint64_t offset = 0;
  std::string out;
  ASSERT_TRUE(read_log(shim->dir(), offset, [&](std::int64_t, Channel channel, std::string_view bytes) {
    out += channel == Channel::kStdout ? "o:" : "e:";
    out += bytes;
    return true;
  }));
  EXPECT_THAT(out, HasSubstr("o:hello\n"));
  EXPECT_THAT(out, HasSubstr("e:bad\n"));
}

TEST_F(ShimGuest, AForegroundCommandWaitsForItsClientAndRemovesEverything) {
  auto shim = from_base({"/bin/sh", "-c", "read line; echo got $line; exit 9"});
  shim->record.main->stdin_open = true;
  shim->record.auto_remove = true;
  shim->spec.start_main_on_attach = true;
  must_start(*shim, LaunchMode::kFromBase);
  auto client = shim->connect();
  ASSERT_TRUE(client);
  Attached main;
  const auto stream = attach(**client, main, true);
  EXPECT_EQ((*client)->write(stream, "it\n"), 3U);
  ASSERT_TRUE(*loop_->run_until([&] { return main.ended(); }, soon()));
  ASSERT_TRUE(main.facts) << main.error->message;
  EXPECT_EQ(main.facts->exit_code, 9);
  EXPECT_EQ(main.out, "got it\n");
  EXPECT_EQ(shim->wait().value_or(-1), 0);
  EXPECT_FALSE(shim->has(kRecordFile));
  EXPECT_NE(::access(shim->path().c_str(), F_OK), 0) << "the directory itself stayed";
}

TEST_F(ShimGuest, PausesAndResumesWithItsProcesses) {
  auto shim = from_base({"/bin/sh", "-c", "i=0; while true; do i=$((i+1)); echo $i; sleep 0.1; done"});
  must_start(*shim, LaunchMode::kFromBase);
  auto client = shim->connect();
  ASSERT_TRUE(client);
  ASSERT_TRUE(shim->shell(
      **client,
      "echo on-disk > /file; echo tmp > /tmp/file; head -c 8 /dev/urandom | od -An -tx1 > /dev/shm/secret"));
  Attached main;
  attach(**client, main);
  ASSERT_TRUE(*loop_->run_until([&] { return main.out.size() > 4; }, soon()));
  const auto paused = (*client)->call(kPause, {}, soon());
  ASSERT_TRUE(paused) << paused.error().message;
  EXPECT_EQ(shim->read()->state, SandboxState::kPaused);
  ASSERT_TRUE(*loop_->run_until([&] { return main.ended(); }, soon()));
  ASSERT_TRUE(main.error);
  EXPECT_EQ(main.error->code, ErrorCode::kInvalidState);
  EXPECT_EQ(shim->wait().value_or(-1), 0);
  const auto record = shim->read();
  ASSERT_TRUE(record && record->saved);
  EXPECT_TRUE(record->saved->durable);

  for (int round = 0; round < 2; ++round) {
    shim->record = *shim->read();
    must_start(*shim, LaunchMode::kResume);
    client = shim->connect();
    ASSERT_TRUE(client);
    EXPECT_EQ(shim->shell(**client, "cat /file /tmp/file")->out, "on-disk\ntmp\n");
    Attached again;
    attach(**client, again);
    ASSERT_TRUE(*loop_->run_until([&] { return again.out.size() > 4 || again.ended(); }, soon()));
    EXPECT_FALSE(again.ended());
    const auto date = shim->shell(**client, "date +%s");
    EXPECT_NEAR(std::stod(date->out), static_cast<double>(::time(nullptr)), 2);
    ASSERT_TRUE((*client)->call(kPause, {}, soon()));
    EXPECT_EQ(shim->wait().value_or(-1), 0);
  }
}

TEST_F(ShimGuest, ALongDiskChainIsFlattenedWhileTheGuestWrites) {
  auto shim = from_base({"/bin/sh", "-c",
                         "i=0; while true; do i=$((i+1)); head -c 70000 /dev/urandom > /w$((i%7)); "
                         "sha256sum /w$((i%7)) > /s$((i%7)); sync; done"});
  must_start(*shim, LaunchMode::kFromBase);
  auto client = shim->connect();
  ASSERT_TRUE(client);
  ASSERT_TRUE(shim->shell(**client, "until [ -e /s6 ]; do sleep 0.1; done"));
  std::size_t longest = 0;
  for (int i = 0; i < 7; ++i) {
    ASSERT_TRUE(shim->shell(**client, "echo " + std::to_string(i) + " >> /generations"));
    const auto saved = (*client)->call(kSnapshot, SnapshotRequest{}.encode(), soon());
    ASSERT_TRUE(saved) << saved.error().message;
    longest = std::max(longest, SnapshotReply::decode(as_bytes(*saved))->disk_chain.size() + 1);
  }
  EXPECT_GT(longest, 8U);
  // A request waits for a flattening in progress.
  ASSERT_TRUE((*client)->call(static_cast<std::uint16_t>(ShimRequest::kGrowDisk),
                              ByteWriter().number(shim->record.disk_bytes).bytes(), soon()));
  EXPECT_LT(shim->read()->disk_chain.size(), 8U);
  EXPECT_EQ(shim->shell(**client, "cat /generations")->out, "0\n1\n2\n3\n4\n5\n6\n");
  ASSERT_TRUE((*client)->call(kStop, StopRequest{}.encode(), soon()));
  EXPECT_EQ(shim->wait().value_or(-1), 0);
  shim->record = *shim->read();
  shim->record.main.reset();
  must_start(*shim, LaunchMode::kBoot);
  client = shim->connect();
  ASSERT_TRUE(client);
  // The command may have been ended between file and sum: one of the seven may be behind.
  const auto sums = shim->shell(**client, "cat /generations | wc -l; cat /s? | sha256sum -c 2>&1");
  EXPECT_THAT(sums->out, ::testing::StartsWith("7\n"));
  std::size_t good = 0;
  for (std::size_t at = 0; (at = sums->out.find(": OK", at)) != std::string::npos; ++at) ++good;
  EXPECT_THAT(good, ::testing::AnyOf(6U, 7U)) << sums->out;
}

TEST_F(ShimGuest, AKilledHypervisorIsReportedAndTheDiskStartsAgain) {
  auto shim = from_base();
  must_start(*shim, LaunchMode::kFromBase);
  auto client = shim->connect();
  ASSERT_TRUE(client);
  ASSERT_TRUE(shim->shell(**client, "echo kept > /kept; sync"));
  ASSERT_EQ(::kill(hypervisor_pid(**client), SIGKILL), 0);
  const auto ran = shim->shell(**client, "sleep 60");
  ASSERT_FALSE(ran);
  EXPECT_EQ(ran.error().code, ErrorCode::kVmLost);
  EXPECT_EQ(shim->wait().value_or(-1), 0);
  EXPECT_EQ(shim->read()->cause, EndCause::kVmLost);
  shim->record = *shim->read();
  must_start(*shim, LaunchMode::kBoot);
  client = shim->connect();
  ASSERT_TRUE(client);
  EXPECT_EQ(shim->shell(**client, "cat /kept")->out, "kept\n");
}

TEST_F(ShimGuest, AKilledShimTakesItsHypervisorAlong) {
  auto shim = from_base();
  must_start(*shim, LaunchMode::kFromBase);
  auto client = shim->connect();
  ASSERT_TRUE(client);
  const int pid = hypervisor_pid(**client);
  const UniqueFd hypervisor(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  ASSERT_TRUE(hypervisor.valid());
  shim->kill(SIGKILL);
  ASSERT_TRUE(shim->wait());
  pollfd ended{hypervisor.get(), POLLIN, 0};
  EXPECT_EQ(::poll(&ended, 1, 5000), 1) << "the hypervisor outlived its shim";
  EXPECT_FALSE(shim->alive());
}

TEST_F(ShimGuest, SigtermIsAnOrderlyStop) {
  auto shim = from_base();
  must_start(*shim, LaunchMode::kFromBase);
  shim->kill(SIGTERM);
  EXPECT_EQ(shim->wait().value_or(-1), 0);
  EXPECT_EQ(shim->read()->cause, EndCause::kStopped);
}

TEST_F(ShimGuest, RootInTheGuestEndsItsMachineOnlyThroughTheKernel) {
  auto shim = from_base();
  must_start(*shim, LaunchMode::kFromBase);
  auto client = shim->connect();
  ASSERT_TRUE(client);
  const auto tried = shim->shell(**client, "kill -9 1; kill -9 -1");
  ASSERT_TRUE(tried) << tried.error().message;
  EXPECT_EQ(shim->shell(**client, "echo alive")->out, "alive\n");
  const auto reset = shim->shell(**client, "echo b > /proc/sysrq-trigger; sleep 60");
  ASSERT_FALSE(reset);
  EXPECT_EQ(reset.error().code, ErrorCode::kVmLost);
  EXPECT_EQ(shim->wait().value_or(-1), 0);
  EXPECT_EQ(shim->read()->cause, EndCause::kGuestEnded);
  EXPECT_THAT(shim->read()->cause_text, HasSubstr("sysrq"));
}

TEST_F(ShimGuest, ARebootEndsTheSandboxWithItsReason) {
  auto shim = from_base();
  must_start(*shim, LaunchMode::kFromBase);
  auto client = shim->connect();
  ASSERT_TRUE(client);
  (void)shim->shell(**client, "reboot -f; sleep 60");
  EXPECT_EQ(shim->wait().value_or(-1), 0);
  EXPECT_EQ(shim->read()->cause, EndCause::kGuestEnded);
  EXPECT_THAT(shim->read()->cause_text, HasSubstr("reboot"));
}

}  // namespace
}  // namespace drupe
