// Clients, streams, credits, and what happens when either side misbehaves.
#include <poll.h>

#include "shim/testing/sandbox_fixture.h"

namespace drupe {
namespace {

using testing::Attached;
using ::testing::HasSubstr;
using testing::SandboxFixture;

class Multiplex : public SandboxFixture {
 protected:
  // The next thing that a raw client hears is the end of its connection.
  bool dropped(int fd) {
    return wait([fd] {
      pollfd ready{fd, POLLIN | POLLRDHUP, 0};
      if (::poll(&ready, 1, 0) <= 0) return false;
      char chunk[65536];
      return (ready.revents & (POLLRDHUP | POLLHUP)) != 0 ||
             ::recv(fd, chunk, sizeof chunk, MSG_DONTWAIT) == 0;
    });
  }
  static std::string frame(FrameType type, std::uint32_t id, std::string_view payload,
                           Channel channel = Channel::kStdin) {
    std::string bytes;
    append_frame(bytes, type, channel, id, payload);
    return bytes;
  }
  static std::string open_frame(std::uint32_t id) {
    OpenRequest request;
    request.exec.exec_id = "raw";
    request.exec.argv = {"x"};
    std::string bytes;
    append_open_frames(bytes, id, request.encode());
    return bytes;
  }
};

TEST_F(Multiplex, CarriesACommandBothWays) {
  start();
  Attached run;
  const auto stream = open(*client_, run);
  const auto id = guest_stream("e1");
  EXPECT_EQ(client_->write(stream, "input"), 5U);
  client_->signal(stream, 15, true);
  client_->resize(stream, 10, 20);
  client_->close_stdin(stream);
  ASSERT_TRUE(wait([&] { return agent().others.size() == 3; }));
  EXPECT_EQ(agent().received[id], "input");
  EXPECT_EQ(agent().others[2].type, FrameType::kEof);
  agent().output(id, "out");
  agent().output(id, "err", Channel::kStderr);
  agent().exit(id, 3);
  ASSERT_TRUE(wait([&] { return run.ended(); }));
  EXPECT_EQ(run.opened, 1);
  EXPECT_EQ(run.out, "out");
  EXPECT_EQ(run.err, "err");
  EXPECT_EQ(run.facts->exit_code, 3);
}

TEST_F(Multiplex, ClientsChooseTheSameIdsAndDoNotMeet) {
  start();
  auto other = ShimClient::connect(*loop_, dir_.get()).value();
  Attached one;
  Attached two;
  open(*client_, one, OpenKind::kExec, "first");
  open(*other, two, OpenKind::kExec, "second");
  agent().output(guest_stream("first"), "1");
  agent().output(guest_stream("second"), "2");
  ASSERT_TRUE(wait([&] { return !one.out.empty() && !two.out.empty(); }));
  EXPECT_EQ(one.out, "1");
  EXPECT_EQ(two.out, "2");
  EXPECT_EQ(ping(*client_, "a").value(), "a");
  EXPECT_EQ(ping(*other, "b").value(), "b");
}

TEST_F(Multiplex, AnOpenOfAMebibyteArrivesWhole) {
  start();
  OpenRequest request;
  request.exec.exec_id = "large";
  for (int i = 0; i < 16; ++i) request.exec.argv.emplace_back(65'000, static_cast<char>('a' + i));
  const auto stream = client_->open(request, {});
  ASSERT_TRUE(stream);
  const auto id = guest_stream("large");
  EXPECT_EQ(agent().opened[id].exec.argv, request.exec.argv);
  client_->write(*stream, "then stdin");
  ASSERT_TRUE(wait([&] { return agent().received[id].size() == 10; }));
}

TEST_F(Multiplex, CreditTravelsFromEndToEnd) {
  start();
  Attached run;
  const auto stream = open(*client_, run);
  const auto id = guest_stream("e1");
  client_->set_manual_credit(stream);
  // Client to guest: one window and no more, until the guest grants.
  const std::string plenty(kInitialCredit * 2, 'x');
  std::size_t taken = 0;
  ASSERT_TRUE(wait([&] {
    taken += client_->write(stream, std::string_view(plenty).substr(taken));
    return agent().received[id].size() == kInitialCredit;
  }));
  EXPECT_EQ(taken, kInitialCredit);
  agent().credit(id, 1000);
  ASSERT_TRUE(wait([&] {
    taken += client_->write(stream, std::string_view(plenty).substr(taken));
    return agent().received[id].size() == kInitialCredit + 1000;
  }));
  // Guest to client: what the client has not taken is not granted.
  agent().output(id, std::string(kInitialCredit, 'y'));
  ASSERT_TRUE(wait([&] { return run.out.size() == kInitialCredit; }));
  settle();
  EXPECT_EQ(agent().granted[id], 0U);
  client_->take(stream, Channel::kStdout, kInitialCredit);
  ASSERT_TRUE(wait([&] { return agent().granted[id] == kInitialCredit; }));
}

TEST_F(Multiplex, AClientThatGoesResetsItsStreams) {
  start();
  auto other = ShimClient::connect(*loop_, dir_.get()).value();
  Attached run;
  open(*other, run);
  const auto id = guest_stream("e1");
  other.reset();
  ASSERT_TRUE(wait([&] { return agent().resets.contains(id); }));
  // What was on its way when the client went is no fault of the guest.
  agent().output(id, "late");
  agent().exit(id, 0);
  EXPECT_TRUE(ping(*client_));
}

TEST_F(Multiplex, RequestsOfTheShimAloneAreRefused) {
  start();
  for (const auto kind : {RequestKind::kFreeze, RequestKind::kSetUp, RequestKind::kShutdown,
                          RequestKind::kHello, RequestKind::kThaw, RequestKind::kGrowRoot}) {
    const std::size_t before = agent().count(kind);
    const auto reply = client_->call(static_cast<std::uint16_t>(kind), {}, soon());
    ASSERT_FALSE(reply);
    EXPECT_EQ(reply.error().code, ErrorCode::kPermission);
    EXPECT_EQ(agent().count(kind), before);
  }
  EXPECT_EQ(client_->call(0x1ff, {}, soon()).error().code, ErrorCode::kUnsupported);
}

TEST_F(Multiplex, HostileClientsAreDroppedAlone) {
  start();
  const std::string header(16, '\xff');
  const std::string over_credit = [&] {
    std::string bytes = open_frame(1);
    for (std::size_t sent = 0; sent <= kInitialCredit; sent += 32768)
      bytes += frame(FrameType::kData, 1, std::string(32768, 'x'));
    return bytes;
  }();
  std::string many_opens;
  for (std::uint32_t i = 0; i < 10; ++i) {
    const std::string torn = ByteWriter().number<std::uint32_t>(1000).take();
    many_opens += frame(FrameType::kOpen, i, torn);
  }
  const std::vector<std::string> attacks{
      header,
      frame(FrameType::kReply, 1, "x"),
      frame(FrameType::kBarrier, 1, ""),
      frame(FrameType::kEvent, 1, "x"),
      frame(FrameType::kOpened, 1, "x"),
      frame(FrameType::kExit, 1, "x"),
      frame(FrameType::kRequest, 1, "x"),
      frame(FrameType::kOpen, 1, "x"),
      frame(FrameType::kOpen, 1, std::string(4, '\xff')),
      open_frame(1) + open_frame(1),
      open_frame(1) + frame(FrameType::kData, 1, "x", Channel::kStdout),
      open_frame(1) + frame(FrameType::kCredit, 1, "x"),
      open_frame(1) + frame(FrameType::kCredit, 1, std::string(4, '\xff'), Channel::kStdout),
      open_frame(1) + frame(FrameType::kSignal, 1, "x"),
      open_frame(1) + frame(FrameType::kResize, 1, "x"),
      over_credit,
      many_opens,
  };
  for (std::size_t i = 0; i < attacks.size(); ++i) {
    const UniqueFd attacker = raw_client();
    std::size_t sent = 0;
    EXPECT_TRUE(wait([&] {
      const ssize_t put = ::send(attacker.get(), attacks[i].data() + sent, attacks[i].size() - sent,
                                 MSG_NOSIGNAL | MSG_DONTWAIT);
      if (put > 0) sent += static_cast<std::size_t>(put);
      return sent == attacks[i].size() || (put < 0 && errno == EPIPE);
    }));
    EXPECT_TRUE(dropped(attacker.get())) << "attack " << i;
    EXPECT_TRUE(ping(*client_)) << "attack " << i;
  }
  ASSERT_TRUE(wait([&] { return sandbox_->hub().clients() == 1; }));
  EXPECT_EQ(sandbox_->hub().streams(), 0U);
}

TEST_F(Multiplex, AnOpenThatMakesNoSenseIsAnswered) {
  start();
  const UniqueFd raw = raw_client();
  std::string bytes;
  append_open_frames(bytes, 5, std::string("\xee garbage", 9));
  bytes += frame(FrameType::kData, 77, "of a stream that is not there");
  ASSERT_EQ(::write(raw.get(), bytes.data(), bytes.size()), static_cast<ssize_t>(bytes.size()));
  char chunk[4096];
  ASSERT_TRUE(wait([&] { return ::recv(raw.get(), chunk, sizeof chunk, MSG_DONTWAIT) > 0; }));
  EXPECT_EQ(chunk[4], static_cast<char>(FrameType::kReset));
  EXPECT_EQ(sandbox_->hub().clients(), 2U);
}

TEST_F(Multiplex, AClientThatDoesNotReadIsGivenUp) {
  start();
  const UniqueFd deaf = raw_client();
  const std::string request =
      frame(FrameType::kRequest, 1,
            encode_request(static_cast<std::uint16_t>(RequestKind::kPing), std::string(60'000, 'x')));
  std::size_t sent = 0;
  EXPECT_TRUE(wait([&] {
    const ssize_t put =
        ::send(deaf.get(), request.data() + sent, request.size() - sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (put > 0) sent = (sent + static_cast<std::size_t>(put)) % request.size();
    return put < 0 && (errno == EPIPE || errno == ECONNRESET);
  }));
  EXPECT_TRUE(ping(*client_));
}

TEST_F(Multiplex, MoreClientsThanTheLimitAreTurnedAway) {
  start();
  std::vector<UniqueFd> crowd;
  for (std::size_t i = 0; i < ClientHub::kMaxClients + 5; ++i) {
    // connect() waits while the listener's queue is full, and this thread is the one that empties it.
    if (i % 16 == 15) settle();
    crowd.push_back(raw_client());
  }
  ASSERT_TRUE(wait([&] { return sandbox_->hub().clients() == ClientHub::kMaxClients; }));
  EXPECT_TRUE(dropped(crowd.back().get()));
  EXPECT_TRUE(ping(*client_));
  auto late = ShimClient::connect(*loop_, dir_.get());
  ASSERT_TRUE(late);
  const auto refused = (*late)->call(static_cast<std::uint16_t>(RequestKind::kPing), "",
                                     Clock::now() + std::chrono::seconds(10));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code, ErrorCode::kLimit);
  EXPECT_THAT(refused.error().message, HasSubstr("64 clients already"));
}

TEST_F(Multiplex, MoreStreamsThanTheGuestTakesAreRefusedWithASentence) {
  start();
  auto other = ShimClient::connect(*loop_, dir_.get()).value();
  std::vector<std::unique_ptr<Attached>> all;
  for (std::size_t i = 0; i < GuestLink::kMaxStreams + 1; ++i) {
    all.push_back(std::make_unique<Attached>());
    open(i % 2 == 0 ? *client_ : *other, *all.back(), OpenKind::kExec, "e" + std::to_string(i));
  }
  const auto refused = [&] {
    for (const auto& one : all)
      if (one->error) return true;
    return false;
  };
  ASSERT_TRUE(wait(refused));
  std::size_t errors = 0;
  for (const auto& one : all) {
    errors += one->error ? 1 : 0;
    if (one->error) {
      EXPECT_EQ(one->error->code, ErrorCode::kLimit);
    }
  }
  EXPECT_EQ(errors, 1U);
}

// --- the guest
// -----------------------------------------------------------------------------------------------------------

struct Attack {
  const char* name;
  bool on_control;
  std::string bytes;
};

class HostileGuest : public Multiplex {};

TEST_F(HostileGuest, EndsItsOwnSandboxWithAReason) {
  const std::vector<Attack> attacks{
      {"garbage on control", true, std::string(64, '\xff')},
      {"garbage on bulk", false, std::string(64, '\xff')},
      {"reply nobody asked for", true, frame(FrameType::kReply, 999, encode_reply(""))},
      {"request from the guest", true, frame(FrameType::kRequest, 1, "xx")},
      {"bulk frame on control", true, frame(FrameType::kData, 1, "x", Channel::kStdout)},
      {"torn event", true, frame(FrameType::kEvent, 0, "x")},
      {"stream never opened", false, frame(FrameType::kData, 77, "x", Channel::kStdout)},
      {"stream zero", false, frame(FrameType::kData, 0, "x", Channel::kStdout)},
      {"barrier", false, frame(FrameType::kBarrier, 1, "")},
      {"reply on bulk", false, frame(FrameType::kOpen, 1, "x")},
      {"data on stdin", false, frame(FrameType::kData, 1, "x", Channel::kStdin)},
      {"too much credit", false, frame(FrameType::kCredit, 1, encode_credit(~0U))},
      {"credit for output", false, frame(FrameType::kCredit, 1, encode_credit(1), Channel::kStdout)},
      {"torn credit", false, frame(FrameType::kCredit, 1, "x")},
      {"signal", false, frame(FrameType::kSignal, 1, encode_signal({9, true}))},
  };
  for (const auto& attack : attacks) {
    SCOPED_TRACE(attack.name);
    start();
    Attached run;
    open(*client_, run);
    ASSERT_EQ(guest_stream("e1"), 1U);
    (attack.on_control ? agent().control() : agent().bulk()).send_raw(attack.bytes);
    serve();
    ASSERT_TRUE(wait([&] { return run.ended(); }));
    EXPECT_EQ(run.error->code, ErrorCode::kVmLost);
    EXPECT_EQ(on_disk().state, SandboxState::kExited);
    EXPECT_EQ(on_disk().cause, EndCause::kGuestEnded) << on_disk().cause_text;
    EXPECT_FALSE(on_disk().cause_text.empty());
    client_.reset();
  }
}

TEST_F(HostileGuest, MoreOutputThanGrantedEndsIt) {
  start();
  Attached run;
  const auto stream = open(*client_, run);
  client_->set_manual_credit(stream);
  agent().output(guest_stream("e1"), std::string(kInitialCredit + 1, 'x'));
  serve();
  EXPECT_EQ(on_disk().cause, EndCause::kGuestEnded);
  EXPECT_THAT(on_disk().cause_text, HasSubstr("more output than was granted"));
}

TEST_F(HostileGuest, NotReadingBoundsTheShimsMemory) {
  start();
  agent().bulk().pause_reading(true);
  // Every open is refused or queued; the queue has an end.
  OpenRequest request;
  request.exec.exec_id = "big";
  for (int i = 0; i < 60; ++i) request.exec.argv.emplace_back(60'000, 'x');
  std::vector<std::unique_ptr<Attached>> all;
  bool busy = false;
  for (int i = 0; i < 8 && !busy; ++i) {
    StreamHandler handler;
    handler.on_error = [&busy](const Error& error) { busy = busy || error.code == ErrorCode::kBusy; };
    ASSERT_TRUE(client_->open(request, std::move(handler)));
    settle();
  }
  EXPECT_TRUE(wait([&] { return busy; }));
  EXPECT_TRUE(ping(*client_));
}

TEST_F(HostileGuest, AnUnintelligibleExitIsTheClientsProblemOnly) {
  start();
  Attached run;
  open(*client_, run);
  const auto id = guest_stream("e1");
  agent().bulk().send(FrameType::kExit, Channel::kStdin, id, "nonsense");
  ASSERT_TRUE(wait([&] { return run.ended(); }));
  auto fresh = ShimClient::connect(*loop_, dir_.get()).value();
  EXPECT_TRUE(ping(*fresh));
}

}  // namespace
}  // namespace drupe
