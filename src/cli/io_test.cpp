#include <array>
#include <csignal>
#include <fstream>

#include <fcntl.h>
#include <sys/socket.h>
#include <unistd.h>

#include <gtest/gtest.h>

#include "base/files.h"
#include "cli/input_source.h"
#include "cli/output_sink.h"
#include "cli/signal_watch.h"

namespace drupe::cli {
namespace {

using std::chrono::seconds;

struct Pipe {
  UniqueFd read, write;
  Pipe() {
    std::array<int, 2> ends{};
    if (::pipe2(ends.data(), O_CLOEXEC) != 0) std::abort();
    read = UniqueFd(ends[0]);
    write = UniqueFd(ends[1]);
  }
};

struct Io : testing::Test {
  std::unique_ptr<EventLoop> loop = *EventLoop::create();
  static void SetUpTestSuite() { std::signal(SIGPIPE, SIG_IGN); }
  void run_until(const std::function<bool()>& done) {
    ASSERT_TRUE(*loop->run_until(done, Clock::now() + seconds(10)));
  }
};

TEST_F(Io, AFullPipeHoldsBytesBackAndDoesNotBlock) {
  Pipe pipe;
  OutputSink sink(*loop, pipe.write.get());
  std::size_t taken = 0;
  sink.set_events({[&](std::uint32_t bytes) { taken += bytes; }, {}});
  const std::string big(1 << 20, 'x');
  sink.write(big);
  EXPECT_FALSE(sink.empty());
  EXPECT_LT(taken, big.size());
  // The descriptor that others share stays blocking.
  EXPECT_EQ(::fcntl(pipe.write.get(), F_GETFL) & O_NONBLOCK, 0);
  std::size_t seen = 0;
  std::string buffer(65536, 0);
  while (seen < big.size()) {
    const auto count = ::read(pipe.read.get(), buffer.data(), buffer.size());
    ASSERT_GT(count, 0);
    seen += static_cast<std::size_t>(count);
    if (seen < big.size() && !sink.empty()) {
      ASSERT_TRUE(loop->run_once(Clock::now() + seconds(10)));
    }
  }
  run_until([&] { return sink.empty(); });
  EXPECT_EQ(taken, big.size());
}

TEST_F(Io, AClosedReaderIsSaidOnceAndLaterBytesAreTaken) {
  Pipe pipe;
  OutputSink sink(*loop, pipe.write.get());
  std::size_t taken = 0;
  int broken = 0;
  sink.set_events(
      {[&](std::uint32_t bytes) { taken += bytes; }, [&](int error) { broken += error == EPIPE ? 1 : 100; }});
  pipe.read.reset();
  sink.write("one");
  sink.write("two");
  EXPECT_EQ(broken, 1);
  EXPECT_EQ(taken, 6U);
  EXPECT_TRUE(sink.empty());
}

TEST_F(Io, SocketsAndFilesAreWritten) {
  std::array<int, 2> ends{};
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends.data()), 0);
  const UniqueFd near(ends[0]);
  const UniqueFd far(ends[1]);
  OutputSink socket_sink(*loop, near.get());
  socket_sink.write("hello");
  std::array<char, 16> text{};
  EXPECT_EQ(::read(far.get(), text.data(), text.size()), 5);

  const UniqueFd file(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  OutputSink file_sink(*loop, file.get());
  file_sink.write("hello");
  EXPECT_TRUE(file_sink.empty());
  EXPECT_EQ(::pread(file.get(), text.data(), text.size(), 0), 5);
}

TEST_F(Io, InputWaitsUntilItsTakerHasRoom) {
  Pipe pipe;
  InputSource source(*loop, pipe.read.get());
  ASSERT_TRUE(write_all(pipe.write.get(), "abcdef"));
  pipe.write.reset();
  std::string got;
  std::size_t room = 2;
  bool ended = false;
  source.start({[&](std::string_view bytes) {
                  const std::size_t count = std::min(room, bytes.size());
                  got += bytes.substr(0, count);
                  room -= count;
                  return count;
                },
                [&] { ended = true; }});
  run_until([&] { return got.size() == 2; });
  ASSERT_TRUE(loop->run_once(Clock::now()));
  EXPECT_EQ(got, "ab");
  EXPECT_FALSE(ended);
  room = 100;
  source.resume();
  run_until([&] { return ended; });
  EXPECT_EQ(got, "abcdef");
}

TEST_F(Io, InputFromARegularFile) {
  const UniqueFd file(::open("/tmp", O_TMPFILE | O_RDWR | O_CLOEXEC, 0600));
  const std::string content(300'000, 'z');
  ASSERT_TRUE(write_all(file.get(), content));
  ASSERT_EQ(::lseek(file.get(), 0, SEEK_SET), 0);
  InputSource source(*loop, file.get());
  std::size_t got = 0;
  bool ended = false;
  source.start({[&](std::string_view bytes) {
                  got += bytes.size();
                  return bytes.size();
                },
                [&] { ended = true; }});
  run_until([&] { return ended; });
  EXPECT_EQ(got, content.size());
}

TEST_F(Io, SignalsAreEvents) {
  int seen = 0;
  {
    auto watch = SignalWatch::create(*loop, {SIGUSR1}, [&](int number) { seen = number; });
    ASSERT_TRUE(watch);
    std::raise(SIGUSR1);
    run_until([&] { return seen != 0; });
  }
  EXPECT_EQ(seen, SIGUSR1);
  sigset_t now;
  ::pthread_sigmask(SIG_SETMASK, nullptr, &now);
  EXPECT_EQ(::sigismember(&now, SIGUSR1), 0);
}

}  // namespace
}  // namespace drupe::cli
