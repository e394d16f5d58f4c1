// A sandbox's life: start, operations, end; each with failures at every step.
#include <csignal>

#include <sys/wait.h>

#include "shim/testing/sandbox_fixture.h"

namespace drupe {
namespace {

using testing::Attached;
using ::testing::ElementsAre;
using testing::FakeMachine;
using ::testing::HasSubstr;
using testing::SandboxFixture;

class Life : public SandboxFixture {
 protected:
  void power_off_when_asked() {
    agent().on_shutdown = [this] { world_.machine->end(0, true, "The guest powered off"); };
  }
};

// Of a chain that is too long; the copying has begun when a test begins.
class Flattening : public Life {
 protected:
  void SetUp() override {
    Life::SetUp();
    record_.disk_chain = {"image.ext4"};
    for (int i = 10; i < 19; ++i) {
      record_.disk_chain.push_back("disk-" + std::to_string(i) + ".qcow2");
      const auto node = open_at(dir_.get(), record_.disk_chain.back(), O_RDWR | O_CREAT);
      ASSERT_TRUE(write_empty_qcow2(node->get(), 1 << 30));
    }
    start();
    ASSERT_TRUE(wait([&] { return world_.flattened != nullptr; }));
  }
  void ask(ShimRequest kind, bool& answered, bool succeeds, std::string_view body = {}) {
    client_->request(static_cast<std::uint16_t>(kind), body,
                     [&answered, succeeds](const Result<std::string>& r) {
                       EXPECT_EQ(r.has_value(), succeeds) << (r ? "" : r.error().message);
                       answered = true;
                     });
  }
  static constexpr std::chrono::milliseconds kMeanwhile{50};
  bool paused_ = false;
};

TEST_F(Life, ABootSetsTheGuestUpBeforeTheRecordSaysRunning) {
  record_.image_env = {"A=b"};
  record_.disk_bytes = 2U << 30;
  start();
  std::vector<std::uint16_t> kinds;
  for (const auto& request : agent().requests) kinds.push_back(request.kind);
  EXPECT_THAT(kinds, ElementsAre(static_cast<int>(RequestKind::kHello), static_cast<int>(RequestKind::kSetUp),
                                 static_cast<int>(RequestKind::kGrowRoot)));
  const auto set_up = SetUpRequest::decode(as_bytes(agent().requests[1].body));
  ASSERT_TRUE(set_up);
  EXPECT_EQ(set_up->hostname, "tester");
  EXPECT_EQ(set_up->default_env, record_.image_env);
  EXPECT_TRUE(set_up->new_identity);
  EXPECT_EQ(set_up->machine_id, on_disk().machine_id);
  EXPECT_EQ(on_disk().state, SandboxState::kRunning);
  EXPECT_EQ(on_disk().state_key, "fake-key");
  EXPECT_EQ(on_disk().isolation, "emulated");
  EXPECT_NE(on_disk().started_ns, 0);
  const auto info = ShimInfo::decode(as_bytes(call(ShimRequest::kInfo).value()));
  EXPECT_EQ(info->console_tail, "last words\n");
  EXPECT_EQ(info->clients, 1U);
}

TEST_F(Life, ARestoreThawsAndUsesItsSavedFilesUp) {
  use_saved();
  start(LaunchMode::kFromBase);
  EXPECT_TRUE(world_.restored);
  EXPECT_EQ(agent().count(RequestKind::kThaw), 1U);
  EXPECT_NE(agent().epochs.at(0), 7U);
  EXPECT_FALSE(on_disk().saved);
  EXPECT_FALSE(has("state"));
  EXPECT_TRUE(has("ram"));
}

TEST_F(Life, ARestoreThatHangsIsTriedAgainWithANewProcess) {
  use_saved();
  world_.silent_launches = 1;
  spec_.start_deadline_ms = 400;
  start(LaunchMode::kFromBase);
  EXPECT_EQ(world_.launches, 2);
  EXPECT_TRUE(ping(*client_));
}

TEST_F(Life, AResumeThatFailsLeavesThePausedSandboxAsItWas) {
  use_saved();
  record_.state = SandboxState::kPaused;
  world_.silent_launches = 9;
  spec_.start_deadline_ms = 200;
  const auto started = try_start(LaunchMode::kResume);
  ASSERT_FALSE(started);
  EXPECT_EQ(started.error().code, ErrorCode::kTimeout);
  EXPECT_THAT(started.error().message, HasSubstr("last words"));
  EXPECT_EQ(encode_record(on_disk()), encode_record(record_));
  EXPECT_TRUE(has("state"));
  EXPECT_FALSE(has("disk-1.qcow2"));
  // The next attempt puts a node of its own on the chain, so the saved one stays what it was.
  world_.silent_launches = 0;
  spec_.start_deadline_ms = 5000;
  start(LaunchMode::kResume);
  EXPECT_THAT(on_disk().disk_chain, ElementsAre("image.ext4", "disk-0.qcow2", "disk-1.qcow2"));
}

TEST_F(Life, WhatAKilledShimLeftIsSwept) {
  for (const char* name : {"delta-9", "disk-9.qcow2", "state-9", "record.json.tmp-abc", "notes"})
    ASSERT_TRUE(replace_file(dir_.get(), name, "x", Sync::kNo));
  start();
  for (const char* name : {"delta-9", "disk-9.qcow2", "state-9", "record.json.tmp-abc"})
    EXPECT_FALSE(has(name)) << name;
  EXPECT_TRUE(has("notes"));
  EXPECT_TRUE(has("disk-0.qcow2"));
}

TEST_F(Life, StopAsksTheGuestAndAnswersWhenTheRecordSaysExited) {
  record_.stop_signal = "SIGINT";
  start();
  int signal = 0;
  agent().on_shutdown = [&] {
    signal = ShutdownRequest::decode(as_bytes(agent().requests.back().body))->signal;
    world_.machine->end(0, true, "The guest powered off");
  };
  bool answered = false;
  client_->request(static_cast<std::uint16_t>(ShimRequest::kStop), StopRequest{}.encode(),
                   [&](const Result<std::string>& r) {
                     EXPECT_TRUE(r);
                     answered = true;
                     EXPECT_EQ(on_disk().state, SandboxState::kExited);
                   });
  serve();
  ASSERT_TRUE(wait([&] { return answered; }));
  EXPECT_EQ(signal, SIGINT);
  EXPECT_EQ(on_disk().cause, EndCause::kStopped);
}

TEST_F(Life, ADiscardedSandboxIsNotAskedAndAnImpatientOneNotAwaited) {
  start();
  bool asked = false;
  agent().on_shutdown = [&] { asked = true; };  // ... and never powers off
  auto impatient = ShimClient::connect(*loop_, dir_.get()).value();
  const auto ignore = [](const Result<std::string>&) {};
  client_->request(static_cast<std::uint16_t>(ShimRequest::kStop), StopRequest{}.encode(), ignore);
  ASSERT_TRUE(wait([&] { return asked; }));
  StopRequest discard;
  discard.discard = true;
  const auto begun = Clock::now();
  impatient->request(static_cast<std::uint16_t>(ShimRequest::kStop), discard.encode(), ignore);
  serve();
  EXPECT_LT(Clock::now() - begun, std::chrono::seconds(2));
}

TEST_F(Life, AMachineThatIsLostIsReportedAfterItsLastBytes) {
  start();
  Attached run;
  open(*client_, run);
  const auto id = guest_stream("e1");
  agent().output(id, "last words");
  world_.machine->end(SIGSEGV, false, "killed by signal 11");
  serve();
  ASSERT_TRUE(wait([&] { return run.ended(); }));
  EXPECT_EQ(run.out, "last words");
  EXPECT_EQ(run.error->code, ErrorCode::kVmLost);
  EXPECT_EQ(on_disk().cause, EndCause::kVmLost);
  EXPECT_THAT(on_disk().cause_text, HasSubstr("signal 11"));
}

TEST_F(Life, AGuestThatPowersOffHasEndedByItself) {
  start();
  world_.machine->end(0, true, "The guest powered off");
  serve();
  EXPECT_EQ(on_disk().cause, EndCause::kGuestEnded);
  EXPECT_THAT(on_disk().cause_text, HasSubstr("last words"));
}

TEST_F(Life, WorkThatWasEndedFromInsideEndsTheSandbox) {
  start();
  power_off_when_asked();
  agent().event(EventKind::kWorkEnded, "killed its init");
  serve();
  EXPECT_EQ(on_disk().cause, EndCause::kGuestEnded);
  EXPECT_THAT(on_disk().cause_text, HasSubstr("killed its init"));
}

TEST_F(Life, TimersEndAndPause) {
  record_.max_lifetime_ms = 30;
  start();
  power_off_when_asked();
  serve();
  EXPECT_EQ(on_disk().cause, EndCause::kLifetime);

  record_.max_lifetime_ms = 0;
  record_.idle_timeout_ms = 30;
  client_.reset();
  start();
  Attached run;
  const auto stream = open(*client_, run);
  guest_stream("e1");
  bool later = false;
  loop_->after(std::chrono::milliseconds(100), [&] { later = true; });
  ASSERT_TRUE(wait([&] { return later; }));
  EXPECT_EQ(on_disk().state, SandboxState::kRunning) << "a client's stream keeps it awake";
  client_->reset(stream, "done");
  serve();
  EXPECT_EQ(on_disk().state, SandboxState::kPaused);
}

TEST_F(Life, AClaimedSandboxBelongsToItsOwner) {
  start();
  const pid_t owner = ::fork();
  if (owner == 0) {
    ::pause();
    ::_exit(0);
  }
  ClaimRequest claim;
  claim.owner_pid = owner;
  SandboxRecord wanted = on_disk();
  wanted.name = "claimed";
  wanted.hostname = "mine";
  wanted.disk_chain = {"../elsewhere"};
  wanted.main.emplace();
  wanted.main->exec_id = "main";
  wanted.main->argv = {"x"};
  claim.record_json = encode_record(wanted);
  EXPECT_FALSE(call(ShimRequest::kClaim, claim.encode())) << "a record that leaves its directory";
  wanted.disk_chain = {"other"};
  wanted.id = "ffffffffffff";
  claim.record_json = encode_record(wanted);
  EXPECT_FALSE(call(ShimRequest::kClaim, claim.encode())) << "another sandbox's record";
  wanted.id = record_.id;
  claim.record_json = encode_record(wanted);
  ASSERT_TRUE(call(ShimRequest::kClaim, claim.encode()));
  EXPECT_EQ(on_disk().name, "claimed");
  EXPECT_EQ(on_disk().disk_chain, record_.disk_chain);
  EXPECT_EQ(SetUpRequest::decode(as_bytes(agent().requests.back().body))->hostname, "mine");
  EXPECT_TRUE(agent().opened.empty());
  ASSERT_TRUE(call(ShimRequest::kStartMain));
  EXPECT_NE(guest_stream("main"), 0U);
  ::kill(owner, SIGKILL);
  serve();
  ::waitpid(owner, nullptr, 0);
  EXPECT_EQ(on_disk().cause, EndCause::kOwnerGone);
}

// --- pause and snapshot
// ----------------------------------------------------------------------------------------------------

TEST_F(Life, APauseIsAnsweredWhenTheRecordSaysSo) {
  start();
  Attached run;
  open(*client_, run);
  guest_stream("e1");
  bool answered = false;
  client_->request(static_cast<std::uint16_t>(ShimRequest::kPause), {}, [&](const Result<std::string>& r) {
    EXPECT_TRUE(r) << r.error().message;
    answered = true;
    EXPECT_EQ(on_disk().state, SandboxState::kPaused);
  });
  serve();
  ASSERT_TRUE(wait([&] { return answered && run.ended(); }));
  EXPECT_EQ(run.error->code, ErrorCode::kInvalidState);
  const auto record = on_disk();
  ASSERT_TRUE(record.saved);
  EXPECT_TRUE(record.saved->durable);
  for (const auto& name :
       {record.saved->delta_file, record.saved->extents_file, record.saved->device_state_file})
    EXPECT_TRUE(has(name.c_str()));
  EXPECT_THAT(world_.calls, ElementsAre("stop", "save", "kill"));
  EXPECT_EQ(record.disk_chain, record_.disk_chain);
}

// The hypervisor can be made to send after the guest has stopped; the sanitizers see what that touches.
TEST_F(Life, WhatComesAfterAPauseReachesNoStream) {
  start();
  Attached run;
  open(*client_, run);
  const auto id = guest_stream("e1");
  testing::FakeAgent* const sender = world_.agent;
  std::size_t sent = 0;
  std::function<void()> flood = [&] {
    if (world_.agent != sender) return;
    sender->output(id, "late");
    ++sent;
    loop_->after(std::chrono::milliseconds(0), flood);
  };
  agent().on_request = [&](RequestKind kind) {
    if (kind == RequestKind::kFreeze) loop_->defer(flood);
  };
  bool paused = false;
  client_->request(static_cast<std::uint16_t>(ShimRequest::kPause), {},
                   [&](const Result<std::string>& reply) { paused = reply.has_value(); });
  serve();
  ASSERT_TRUE(wait([&] { return paused && run.ended(); }));
  EXPECT_GT(sent, 0U);
  EXPECT_TRUE(run.error);
  EXPECT_EQ(on_disk().state, SandboxState::kPaused);
}

TEST_F(Life, ASocketThatIsALinkIsNotFollowed) {
  start();
  ASSERT_EQ(::renameat(dir_.get(), kSocketFile, dir_.get(), "elsewhere.sock"), 0);
  ASSERT_EQ(::symlinkat("elsewhere.sock", dir_.get(), kSocketFile), 0);
  const auto client = ShimClient::connect(*loop_, dir_.get());
  ASSERT_FALSE(client);
  EXPECT_NE(client.error().code, ErrorCode::kInvalidState) << "that would mean: not running";
}

TEST_F(Life, ASaveThatFailsAtAnyStepIsUndone) {
  for (const std::string step :
       {"freeze", "stop", "save", "prepare", "hold", "restore", "no answer", "early end"}) {
    SCOPED_TRACE(step);
    world_.calls.clear();
    world_.fail_call = step;
    client_.reset();
    start();
    agent().freeze_fails = step == "freeze";
    world_.silent_restore = step == "no answer" || step == "early end";
    if (step == "early end") world_.on_restore = [this] { world_.machine->end(1, false, "out of luck"); };
    Attached run;
    open(*client_, run);
    const auto id = guest_stream("e1");
    const std::string before = encode_record(on_disk());
    const bool pause = step == "freeze" || step == "stop" || step == "save";
    SnapshotRequest request;
    request.deadline_ms = 2000;
    const auto failed = pause ? call(ShimRequest::kPause) : call(ShimRequest::kSnapshot, request.encode());
    ASSERT_FALSE(failed);
    // Streams go on over it, and the record has not moved.
    agent().output(id, "on");
    ASSERT_TRUE(wait([&] { return run.out == "on"; }));
    EXPECT_TRUE(ping(*client_));
    SandboxRecord after = on_disk();
    after.next_file = decode_record(before)->next_file;
    EXPECT_EQ(encode_record(after), before);
    for (const char* name : {"delta-1", "extents-1", "state-1", "disk-1.qcow2", "disk-2.qcow2"})
      EXPECT_FALSE(has(name)) << name;
    EXPECT_EQ(world_.running.size(), 1U);
    // And the next one works.
    world_.fail_call.clear();
    world_.on_restore = nullptr;
    world_.silent_restore = false;
    agent().freeze_fails = false;
    EXPECT_TRUE(call(ShimRequest::kSnapshot, SnapshotRequest{}.encode()));
    record_.next_file = 1;
  }
}

TEST_F(Life, ASnapshotGoesOnInANewMachineAndTheSameEpoch) {
  start();
  Attached run;
  const auto stream = open(*client_, run);
  const auto id = guest_stream("e1");
  FakeMachine* const old = world_.machine;
  const std::uint64_t epoch = agent().epochs.at(0);
  world_.on_restore = [this, id] {
    // The record names the new node before a machine writes to it.
    EXPECT_THAT(on_disk().disk_chain, ElementsAre("image.ext4", "disk-0.qcow2", "disk-2.qcow2"));
    EXPECT_TRUE(has("disk-2.qcow2"));
    // Work that goes on has its say at once.
    agent().on_request = [this, id](RequestKind kind) {
      if (kind == RequestKind::kThaw) agent().output(id, "o");
    };
  };
  const auto bytes = call(ShimRequest::kSnapshot, SnapshotRequest{}.encode());
  ASSERT_TRUE(bytes) << bytes.error().message;
  const auto reply = SnapshotReply::decode(as_bytes(*bytes));
  EXPECT_THAT(reply->disk_chain, ElementsAre("image.ext4", "disk-0.qcow2"));
  EXPECT_EQ(world_.disk_nodes, 3U);
  EXPECT_THAT(world_.calls, ElementsAre("prepare", "stop", "save", "hold", "restore", "kill"));
  EXPECT_TRUE(has(reply->saved.delta_file.c_str()));
  EXPECT_NE(world_.machine, old);
  EXPECT_EQ(world_.running.size(), 1U) << "the saved machine has ended before the answer";
  EXPECT_THAT(agent().epochs, ElementsAre(epoch));
  EXPECT_EQ(reply->saved.epoch, epoch);
  // The clock is right, and everything else as it was, before the work goes on.
  ASSERT_EQ(agent().requests.size(), 2U);
  const auto set_up = SetUpRequest::decode(as_bytes(agent().requests[0].body));
  ASSERT_TRUE(set_up);
  EXPECT_FALSE(set_up->new_identity);
  EXPECT_EQ(agent().requests[1].kind, static_cast<int>(RequestKind::kThaw));
  client_->write(stream, "more");
  agent().output(id, "n");
  ASSERT_TRUE(wait([&] { return run.out == "on" && agent().received[id] == "more"; }));
  // What the machine before has said is still there, and the end of the new one is the sandbox's.
  const auto info = ShimInfo::decode(as_bytes(call(ShimRequest::kInfo).value()));
  EXPECT_EQ(info->console_tail, "last words\nlast words\n");
  world_.machine->end(SIGSEGV, false, "killed by signal 11");
  serve();
  EXPECT_EQ(on_disk().cause, EndCause::kVmLost);
}

TEST_F(Life, ASnapshotTellsItsStages) {
  start();
  SnapshotRequest request;
  request.ticket = 7;
  const auto ask_stage = [this](std::uint64_t ticket, SnapshotStageRequest::Stage stage,
                                std::optional<Result<std::string>>& answer) {
    client_->request(static_cast<std::uint16_t>(ShimRequest::kSnapshotStage),
                     SnapshotStageRequest{ticket, stage}.encode(),
                     [&](Result<std::string> reply) { answer = std::move(reply); });
  };
  std::optional<Result<std::string>> saved, moved, others;
  ask_stage(7, SnapshotStageRequest::Stage::kSaved, saved);
  ask_stage(7, SnapshotStageRequest::Stage::kMoved, moved);
  ask_stage(8, SnapshotStageRequest::Stage::kSaved, others);
  world_.on_restore = [&] {
    // The files are complete and nothing changes the disk any more, but the parent may still go back.
    ASSERT_TRUE(wait([&] { return saved.has_value(); }));
    EXPECT_EQ(world_.calls.at(3), "hold");
    EXPECT_FALSE(moved);
  };
  const auto bytes = call(ShimRequest::kSnapshot, request.encode());
  ASSERT_TRUE(bytes) << bytes.error().message;
  ASSERT_TRUE(saved && *saved && moved && *moved);
  const auto early = SnapshotReply::decode(as_bytes(**saved));
  const auto reply = SnapshotReply::decode(as_bytes(*bytes));
  ASSERT_TRUE(early && reply);
  EXPECT_EQ(early->saved.delta_file, reply->saved.delta_file);
  EXPECT_EQ(early->disk_chain, reply->disk_chain);
  EXPECT_EQ(reply->timings.back().first, "old ended");
  EXPECT_FALSE(others) << "of another snapshot";
}

TEST_F(Life, ASnapshotThatFailsSaysSoAtItsStages) {
  start();
  world_.fail_call = "restore";
  SnapshotRequest request;
  request.ticket = 7;
  std::optional<Result<std::string>> saved, moved;
  for (auto* const answer : {&saved, &moved})
    client_->request(static_cast<std::uint16_t>(ShimRequest::kSnapshotStage),
                     SnapshotStageRequest{7, answer == &saved ? SnapshotStageRequest::Stage::kSaved
                                                              : SnapshotStageRequest::Stage::kMoved}
                         .encode(),
                     [answer](Result<std::string> reply) { *answer = std::move(reply); });
  EXPECT_FALSE(call(ShimRequest::kSnapshot, request.encode()));
  ASSERT_TRUE(wait([&] { return saved && moved; }));
  EXPECT_TRUE(*saved);
  EXPECT_FALSE(*moved);
  EXPECT_THAT(world_.calls, ElementsAre("prepare", "stop", "save", "hold", "restore", "cont"));
}

TEST_F(Life, ANewMachineThatIsLostBeforeTheWorkGoesOnEndsTheSandbox) {
  start();
  world_.on_restore = [this] {
    agent().on_request = [this](RequestKind) { world_.machine->end(SIGKILL, false, "killed by signal 9"); };
  };
  EXPECT_FALSE(call(ShimRequest::kSnapshot, SnapshotRequest{}.encode()));
  serve();
  EXPECT_EQ(on_disk().cause, EndCause::kVmLost);
  EXPECT_THAT(on_disk().disk_chain, ElementsAre("image.ext4", "disk-0.qcow2", "disk-2.qcow2"));
}

TEST_F(Life, OperationsQueueUp) {
  start();
  int done = 0;
  for (int i = 0; i < 3; ++i)
    client_->request(static_cast<std::uint16_t>(ShimRequest::kSnapshot), SnapshotRequest{}.encode(),
                     [&](const Result<std::string>& r) {
                       EXPECT_TRUE(r);
                       ++done;
                     });
  ASSERT_TRUE(wait([&] { return done == 3; }));
  EXPECT_EQ(on_disk().disk_chain.size(), 5U);
  // A pause ends the sandbox; what queued behind it is told so.
  client_->request(static_cast<std::uint16_t>(ShimRequest::kPause), {}, [&](const Result<std::string>& r) {
    EXPECT_TRUE(r);
    ++done;
  });
  client_->request(static_cast<std::uint16_t>(ShimRequest::kSnapshot), SnapshotRequest{}.encode(),
                   [&](const Result<std::string>& r) {
                     EXPECT_FALSE(r);
                     ++done;
                   });
  serve();
  ASSERT_TRUE(wait([&] { return done == 5; }));
}

TEST_F(Life, AMachineLostDuringASaveEndsTheSandbox) {
  start();
  world_.silent_restore = true;
  world_.on_restore = [this] { world_.running.front()->end(SIGKILL, false, "killed by signal 9"); };
  const auto failed = call(ShimRequest::kSnapshot, SnapshotRequest{}.encode());
  EXPECT_FALSE(failed);
  serve();
  EXPECT_EQ(on_disk().state, SandboxState::kExited);
}

TEST_F(Flattening, ALongChainIsFlattenedAndItsNodesGo) {
  // The old top has subclusters, into which the hypervisor cannot flatten: a new one is above it.
  EXPECT_EQ(on_disk().disk_chain.size(), 11U);
  const std::string top = on_disk().disk_chain.back();
  EXPECT_NE(top, "disk-18.qcow2");
  EXPECT_EQ(read_file(dir_.get(), top, 1 << 20).value().at(79), '\0');
  world_.flattened({});
  ASSERT_TRUE(wait([&] { return on_disk().disk_chain.size() == 2; }));
  EXPECT_THAT(on_disk().disk_chain, ElementsAre("image.ext4", top));
  EXPECT_FALSE(has("disk-10.qcow2"));
  EXPECT_FALSE(has("disk-18.qcow2"));
  EXPECT_TRUE(has(top.c_str()));
}

TEST_F(Flattening, AStopRightAfterTheCopyingWaitsForTheNodes) {
  bool answered = false;
  world_.on_drop = [&] {
    StopRequest discard;
    discard.discard = true;
    ask(ShimRequest::kStop, answered, true, discard.encode());
  };
  world_.flattened({});
  serve();
  ASSERT_TRUE(wait([&] { return answered; }));
  EXPECT_THAT(world_.calls, ElementsAre("flatten", "drop", "kill"));
  EXPECT_EQ(on_disk().state, SandboxState::kExited);
  EXPECT_EQ(on_disk().disk_chain.size(), 2U);
}

TEST_F(Flattening, AStopDoesNotWaitForTheCopying) {
  power_off_when_asked();
  bool answered = false;
  ask(ShimRequest::kStop, answered, true, StopRequest{}.encode());
  serve();
  ASSERT_TRUE(wait([&] { return answered; }));
  EXPECT_EQ(on_disk().disk_chain.size(), 11U);
  // What the machine may still say finds nobody.
  world_.flattened({});
  settle();
  EXPECT_THAT(world_.calls, ElementsAre("flatten"));
  EXPECT_EQ(on_disk().disk_chain.size(), 11U);
}

TEST_F(Flattening, SavesWaitForTheCopyingAndDropTheNodesThemselves) {
  bool answered = false;
  ask(ShimRequest::kSnapshot, answered, true, SnapshotRequest{}.encode());
  // From the loop: while an operation waits, it runs above this test.
  loop_->after(kMeanwhile, [&] {
    EXPECT_FALSE(answered);
    EXPECT_THAT(world_.calls, ElementsAre("flatten"));
    world_.flattened({});
  });
  ASSERT_TRUE(wait([&] { return answered; }));
  EXPECT_THAT(world_.calls,
              ElementsAre("flatten", "drop", "prepare", "stop", "save", "hold", "restore", "kill"));
  EXPECT_EQ(world_.disk_nodes, 3U);
  settle();
  EXPECT_EQ(on_disk().disk_chain.size(), 3U);
}

TEST_F(Flattening, APauseInTheSameMomentSavesTheShortChain) {
  world_.on_drop = [this] { ask(ShimRequest::kPause, paused_, true); };
  world_.flattened({});
  serve();
  ASSERT_TRUE(wait([&] { return paused_; }));
  EXPECT_THAT(world_.calls, ElementsAre("flatten", "drop", "stop", "save", "kill"));
  EXPECT_EQ(on_disk().state, SandboxState::kPaused);
  EXPECT_EQ(on_disk().disk_chain.size(), 2U);
}

TEST_F(Flattening, AnEndDoesNotWaitForASaveThatWaits) {
  power_off_when_asked();
  int refused = 0;
  for (const auto kind : {ShimRequest::kSnapshot, ShimRequest::kPause})
    client_->request(static_cast<std::uint16_t>(kind),
                     kind == ShimRequest::kPause ? std::string() : SnapshotRequest{}.encode(),
                     [&refused](const Result<std::string>& r) {
                       ASSERT_FALSE(r);
                       EXPECT_EQ(r.error().code, ErrorCode::kInvalidState);
                       ++refused;
                     });
  bool answered = false;
  const auto begun = Clock::now();
  loop_->after(kMeanwhile, [&] { ask(ShimRequest::kStop, answered, true, StopRequest{}.encode()); });
  serve();
  ASSERT_TRUE(wait([&] { return answered && refused == 2; }));
  EXPECT_LT(Clock::now() - begun, std::chrono::seconds(5));
  EXPECT_THAT(world_.calls, ElementsAre("flatten"));
  EXPECT_EQ(on_disk().state, SandboxState::kExited);
  EXPECT_EQ(on_disk().disk_chain.size(), 11U);
}

TEST_F(Flattening, OneThatFailsLeavesTheLongChain) {
  bool answered = false;
  ask(ShimRequest::kGrowDisk, answered, true, ByteWriter().number(std::uint64_t{1} << 30).bytes());
  loop_->after(kMeanwhile, [&] {
    EXPECT_FALSE(answered);
    world_.flattened(fail(ErrorCode::kHost, "out of space"));
  });
  ASSERT_TRUE(wait([&] { return answered; }));
  EXPECT_THAT(world_.calls, ElementsAre("flatten", "grow"));
  EXPECT_EQ(on_disk().disk_chain.size(), 11U);
  EXPECT_TRUE(has("disk-10.qcow2"));
}

TEST_F(Life, ASnapshotDoesNotReviveARecordThatHasEnded) {
  use_main();
  record_.auto_remove = true;
  spec_.start_main_on_attach = true;
  start();
  ASSERT_TRUE(call(ShimRequest::kStartMain));
  const auto main = guest_stream("main");
  // The command ends while the snapshot is under way.
  std::optional<SandboxState> seen;
  agent().on_request = [&](RequestKind kind) {
    if (kind == RequestKind::kFreeze) agent().exit(main, 0);
    if (kind == RequestKind::kThaw) seen = on_disk().state;
  };
  bool refused = false;
  client_->request(static_cast<std::uint16_t>(ShimRequest::kSnapshot), SnapshotRequest{}.encode(),
                   [&refused](const Result<std::string>& r) { refused = !r; });
  ASSERT_TRUE(wait([&] { return refused; }));
  EXPECT_EQ(seen, SandboxState::kExited);
  serve();
  EXPECT_EQ(directory_removals_, 1);
}

TEST_F(Life, ABaseSnapshotExercisesAndSavesWhole) {
  record_.disk_chain = {"image.ext4", kBaseDiskFile};
  for (const char* name : {kBaseRamFile, kBaseStateFile}) ::unlinkat(dir_.get(), name, 0);
  spec_.exercise = {"one", "two"};
  // The agent does not exist before start(), so its answer to exercises is set by the loop's first turn.
  loop_->defer([this] { agent().on_open = [this](std::uint32_t id) { agent().exit(id, 1); }; });
  start(LaunchMode::kMakeBase);
  serve();
  const auto record = on_disk();
  EXPECT_EQ(record.state, SandboxState::kPaused);
  EXPECT_EQ(record.base_ram_file, kBaseRamFile);
  ASSERT_TRUE(record.saved);
  EXPECT_EQ(record.saved->device_state_file, kBaseStateFile);
  EXPECT_TRUE(record.saved->delta_file.empty());
  EXPECT_NE(record.saved->epoch, 0U);
}

}  // namespace
}  // namespace drupe
