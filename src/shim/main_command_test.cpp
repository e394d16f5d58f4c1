// The main command: its log, its attached clients, its end.
#include "shim/testing/sandbox_fixture.h"

namespace drupe {
namespace {

using testing::Attached;
using testing::SandboxFixture;

class Main : public SandboxFixture {
 protected:
  void SetUp() override {
    SandboxFixture::SetUp();
    use_main();
  }
  std::unique_ptr<ShimClient> another() { return ShimClient::connect(*loop_, dir_.get()).value(); }
};

TEST_F(Main, RunsWithoutClientsIntoTheLog) {
  start();
  const auto id = guest_stream("main");
  EXPECT_TRUE(agent().opened[id].exec.keep_on_reset);
  EXPECT_TRUE(on_disk().main_started);
  std::string written;
  // More than a window: the log takes it all, so the guest is granted more.
  for (int i = 0; i < 20; ++i) {
    const std::string chunk(100'000, static_cast<char>('a' + i));
    agent().output(id, chunk);
    written += chunk;
    ASSERT_TRUE(wait([&] { return agent().granted[id] + kInitialCredit >= written.size() + chunk.size(); }));
  }
  ASSERT_TRUE(wait([&] { return log_text() == written; }));
}

TEST_F(Main, WaitsForItsClientWhenInTheForeground) {
  spec_.start_main_on_attach = true;
  start();
  settle();
  EXPECT_TRUE(agent().opened.empty());
  Attached run;
  const auto stream = attach(*client_, run, true);
  const auto id = guest_stream("main");
  client_->write(stream, "in");
  client_->close_stdin(stream);
  ASSERT_TRUE(wait([&] { return !agent().others.empty(); }));
  EXPECT_EQ(agent().received[id], "in");
  EXPECT_EQ(agent().others[0].type, FrameType::kEof);
  EXPECT_EQ(run.opened, 1);
}

TEST_F(Main, IsStartedByRequestOnlyOnce) {
  spec_.start_main_on_attach = true;
  start();
  ASSERT_TRUE(call(ShimRequest::kStartMain));
  EXPECT_NE(guest_stream("main"), 0U);
  EXPECT_EQ(call(ShimRequest::kStartMain).error().code, ErrorCode::kInvalidState);
  Attached run;
  open(*client_, run, OpenKind::kExec, "main");
  ASSERT_TRUE(wait([&] { return run.ended(); }));
  EXPECT_EQ(run.error->code, ErrorCode::kAlreadyExists);
}

TEST_F(Main, AllAttachedClientsGetTheOutputAndTheFirstFeedsStdin) {
  start();
  const auto id = guest_stream("main");
  auto other = another();
  Attached one;
  Attached two;
  const auto first = attach(*client_, one, true);
  const auto second = attach(*other, two, true);
  ASSERT_TRUE(wait([&] { return one.opened == 1 && two.opened == 1; }));
  client_->write(first, "mine");
  other->write(second, "not mine");
  agent().output(id, "hello");
  ASSERT_TRUE(
      wait([&] { return one.out == "hello" && two.out == "hello" && !agent().received[id].empty(); }));
  settle();
  EXPECT_EQ(agent().received[id], "mine");
  // The first goes, its stdin stays open; the next to attach with stdin feeds it.
  client_->reset(first, "detach");
  auto third = another();
  Attached three;
  settle();
  const auto next = attach(*third, three, true);
  third->write(next, "+more");
  ASSERT_TRUE(wait([&] { return agent().received[id] == "mine+more"; }));
  EXPECT_FALSE(agent().resets.contains(id));
}

TEST_F(Main, TheSlowestAttachedClientHoldsTheGuestBack) {
  start();
  const auto id = guest_stream("main");
  auto slow = another();
  Attached fast_run;
  Attached slow_run;
  attach(*client_, fast_run);
  const auto slow_stream = attach(*slow, slow_run);
  slow->set_manual_credit(slow_stream);
  ASSERT_TRUE(wait([&] { return slow_run.opened == 1; }));
  agent().output(id, std::string(kInitialCredit, 'x'));
  ASSERT_TRUE(
      wait([&] { return slow_run.out.size() == kInitialCredit && fast_run.out.size() == kInitialCredit; }));
  settle();
  EXPECT_EQ(agent().granted[id], 0U);
  slow->take(slow_stream, Channel::kStdout, kInitialCredit);
  // Both have taken most of a window now; grants come in steps of half a window.
  ASSERT_TRUE(wait([&] { return agent().granted[id] >= kInitialCredit / 2; }));
  settle();
  const std::uint64_t granted = agent().granted[id];
  EXPECT_LE(granted, kInitialCredit);
  agent().output(id, std::string(granted, 'y'));
  ASSERT_TRUE(wait([&] { return slow_run.out.size() == kInitialCredit + granted; }));
  settle();
  EXPECT_LE(agent().granted[id], kInitialCredit);
  const std::uint64_t held_back = agent().granted[id];
  // When the slow one goes, nothing holds the guest back.
  slow.reset();
  ASSERT_TRUE(wait([&] { return agent().granted[id] > held_back; }));
}

TEST_F(Main, AClientThatAttachesLateGetsOneWindowAndNoMore) {
  start();
  const auto id = guest_stream("main");
  agent().output(id, std::string(100'000, 'x'));
  ASSERT_TRUE(wait([&] { return log_text().size() == 100'000; }));
  Attached late;
  const auto stream = attach(*client_, late);
  client_->set_manual_credit(stream);
  ASSERT_TRUE(wait([&] { return late.opened == 1; }));
  const std::uint64_t may_send = kInitialCredit + agent().granted[id] - 100'000;
  EXPECT_LE(may_send, kInitialCredit);
  agent().output(id, std::string(may_send, 'y'));
  ASSERT_TRUE(wait([&] { return late.out.size() == may_send; }));
  EXPECT_FALSE(late.ended());
}

TEST_F(Main, ItsEndIsToldRecordedAndEndsTheSandbox) {
  start();
  const auto id = guest_stream("main");
  Attached run;
  attach(*client_, run);
  ASSERT_TRUE(wait([&] { return run.opened == 1; }));
  agent().on_shutdown = [this] { world_.machine->end(0, true, "The guest powered off"); };
  agent().output(id, "last");
  agent().exit(id, 5);
  serve();
  ASSERT_TRUE(wait([&] { return run.ended(); }));
  EXPECT_EQ(run.facts->exit_code, 5);
  EXPECT_EQ(run.out, "last");
  const auto record = on_disk();
  EXPECT_EQ(record.state, SandboxState::kExited);
  EXPECT_EQ(record.cause, EndCause::kFinished);
  EXPECT_EQ(record.main_exit->exit_code, 5);
  EXPECT_FALSE(has(kSocketFile));
}

TEST_F(Main, ADisposableSandboxIsKilledAtOnceAndLeavesNothing) {
  record_.auto_remove = true;
  start();
  const auto id = guest_stream("main");
  bool asked_to_shut_down = false;
  agent().on_shutdown = [&] { asked_to_shut_down = true; };
  Attached run;
  attach(*client_, run);
  auto waiting = std::make_shared<std::optional<Result<std::string>>>();
  client_->request(static_cast<std::uint16_t>(ShimRequest::kWait), {},
                   [waiting](Result<std::string> r) { *waiting = std::move(r); });
  ASSERT_TRUE(wait([&] { return run.opened == 1; }));
  agent().exit(id, 1);
  serve();
  ASSERT_TRUE(wait([&] { return run.ended() && waiting->has_value(); }));
  EXPECT_FALSE(asked_to_shut_down);
  EXPECT_FALSE(has(kRecordFile));
  EXPECT_FALSE(has("disk-0.qcow2"));
  EXPECT_FALSE(has("log"));
  EXPECT_EQ(directory_removals_, 1);
  const auto reply = WaitReply::decode(as_bytes(waiting->value().value()));
  EXPECT_EQ(decode_record(reply->record_json)->main_exit->exit_code, 1);
}

TEST_F(Main, IsFoundAgainAfterAResume) {
  record_.state = SandboxState::kPaused;
  record_.main_started = true;
  use_saved();
  start(LaunchMode::kResume);
  const auto id = guest_stream("main");
  EXPECT_EQ(agent().opened[id].kind, OpenKind::kAttach);
  agent().output(id, "still here");
  ASSERT_TRUE(wait([&] { return log_text() == "still here"; }));
}

TEST_F(Main, AMainThatCannotStartEndsTheSandboxWithItsFacts) {
  start();
  const auto id = guest_stream("main");
  ExitFacts facts;
  facts.exit_code = 127;
  facts.error = Error{ErrorCode::kNotFound, "work: not found", {}, 2};
  agent().on_shutdown = [this] { world_.machine->end(0, true, "The guest powered off"); };
  agent().bulk().send(FrameType::kExit, Channel::kStdin, id, facts.encode());
  serve();
  EXPECT_EQ(on_disk().main_exit->exit_code, 127);
  EXPECT_EQ(on_disk().main_exit->error->message, "work: not found");
}

}  // namespace
}  // namespace drupe
