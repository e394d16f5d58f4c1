// Forks of a running sandbox: what the parent, its clients and its children see of them.
#include <csignal>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>
#include <set>
#include <sstream>

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "shim/testing/shim_guest.h"

namespace drupe {
namespace {

using testing::attach;
using testing::Attached;
using testing::hypervisor_pid;
using testing::kInfo;
using testing::kPause;
using testing::kSnapshot;
using testing::ShimGuest;
using testing::ShimProcess;
using testing::soon;

class ForkGuest : public ShimGuest {
 protected:
  static SnapshotReply snapshot(ShimClient& client) {
    const auto bytes = client.call(kSnapshot, SnapshotRequest{}.encode(), soon());
    EXPECT_TRUE(bytes) << bytes.error().message;
    auto reply = bytes ? SnapshotReply::decode(as_bytes(*bytes)) : Result<SnapshotReply>();
    EXPECT_TRUE(reply);
    return reply ? *reply : SnapshotReply();
  }
};

TEST_F(ForkGuest, ASnapshotLeavesTheParentRunningAndChildrenShareNothing) {
  auto parent = from_base({"/bin/sh", "-c", "while true; do echo tick; sleep 0.05; done"});
  must_start(*parent, LaunchMode::kFromBase);
  auto client = parent->connect();
  ASSERT_TRUE(client);
  ASSERT_TRUE(parent->shell(**client, "echo before > /file"));
  Attached main;
  attach(**client, main);
  const auto reply = snapshot(**client);
  ASSERT_FALSE(reply.disk_chain.empty());
  RecordProperty("stopped_ms", std::to_string(reply.stopped_ms));
  EXPECT_FALSE(main.ended());
  EXPECT_EQ(parent->read()->disk_chain.size(), reply.disk_chain.size() + 1);

  auto child = ShimProcess::create(*loop_);
  ASSERT_TRUE(child);
  for (const auto& name : reply.disk_chain) ASSERT_TRUE((*child)->link_from(*parent, name));
  for (const auto& name : {reply.saved.delta_file, reply.saved.extents_file, reply.saved.device_state_file,
                           parent->record.base_ram_file})
    ASSERT_TRUE((*child)->link_from(*parent, name));
  const auto own = (*child)->record;
  (*child)->record = *parent->read();
  (*child)->record.id = own.id;
  (*child)->record.machine_id.clear();
  (*child)->record.hostname = "child";
  (*child)->record.state = SandboxState::kPaused;
  (*child)->record.saved = reply.saved;
  (*child)->record.disk_chain = reply.disk_chain;
  (*child)->record.disk_chain.push_back("disk-900.qcow2");
  must_start(**child, LaunchMode::kForkChild);
  auto child_client = (*child)->connect();
  ASSERT_TRUE(child_client);
  EXPECT_EQ((*child)->shell(**child_client, "cat /file; echo child > /file; hostname")->out,
            "before\nchild\n");
  EXPECT_EQ(parent->shell(**client, "cat /file; echo parent > /file; hostname")->out, "before\ntester\n");
  EXPECT_EQ((*child)->shell(**child_client, "cat /file")->out, "child\n");
  const std::size_t had = main.out.size();
  ASSERT_TRUE(*loop_->run_until([&] { return main.out.size() > had + 20 || main.ended(); }, soon()));
  EXPECT_FALSE(main.ended());
  Attached child_main;
  attach(**child_client, child_main);
  ASSERT_TRUE(*loop_->run_until([&] { return child_main.out.size() > 20 || child_main.ended(); }, soon()));
  EXPECT_FALSE(child_main.ended());
}

// A command that copies its stdin to its stdout, fed and read for as long as the test likes.
class Echo {
 public:
  Echo(EventLoop& loop, ShimClient& client) : loop_(loop), client_(client) {
    OpenRequest request;
    request.exec.exec_id = "echo";
    request.exec.argv = {"cat"};
    request.exec.stdin_open = true;
    StreamHandler handler;
    handler.on_data = [this](Channel, std::string_view bytes) { check(bytes); };
    handler.on_exit = [this](const ExitFacts& facts) { exit_code_ = facts.exit_code; };
    handler.on_error = [this](const Error& error) { error_ = error.message; };
    handler.on_writable = [this] { feed(); };
    stream_ = client.open(request, std::move(handler)).value_or(0);
    loop_.defer([this] { feed(); });
  }
  [[nodiscard]] std::uint64_t echoed() const { return echoed_; }
  /// Nothing is missing, doubled or changed, and the command has ended well. Why not; else empty.
  std::string finish() {
    closing_ = true;
    feed();
    (void)loop_.run_until([this] { return exit_code_ || !error_.empty(); }, soon());
    if (!error_.empty()) return error_;
    if (exit_code_ != 0) return "the command did not end";
    return echoed_ == sent_ ? "" : std::to_string(sent_) + " sent, " + std::to_string(echoed_) + " came back";
  }

 private:
  // The byte at an offset of the stream: no two stretches of 64 KiB are alike.
  static char byte_at(std::uint64_t offset) {
    return static_cast<char>((offset * 2654435761U >> 13) ^ (offset >> 16));
  }
  void feed() {
    while (!closing_ && error_.empty()) {
      std::string chunk(8192, '\0');
      for (std::size_t i = 0; i < chunk.size(); ++i) chunk[i] = byte_at(sent_ + i);
      const std::size_t taken = client_.write(stream_, chunk);
      sent_ += taken;
      if (taken < chunk.size()) return;
    }
    if (closing_ && !closed_) client_.close_stdin(stream_);
    closed_ = closing_;
  }
  void check(std::string_view bytes) {
    for (const char c : bytes)
      if (c != byte_at(echoed_++) && error_.empty()) error_ = "differs at " + std::to_string(echoed_ - 1);
  }

  EventLoop& loop_;
  ShimClient& client_;
  ShimClient::StreamId stream_ = 0;
  std::uint64_t sent_ = 0, echoed_ = 0;
  bool closing_ = false, closed_ = false;
  std::optional<int> exit_code_;
  std::string error_;
};

TEST_F(ForkGuest, StreamsGoOnOverForksByteForByte) {
  auto parent = from_base({"/bin/sh", "-c", "i=0; while true; do i=$((i+1)); echo $i; done"});
  must_start(*parent, LaunchMode::kFromBase);
  auto client = parent->connect();
  ASSERT_TRUE(client);
  Attached main;
  attach(**client, main);
  Echo echo(*loop_, **client);
  std::string times;
  for (int fork = 0; fork < 5; ++fork) {
    const std::uint64_t had = echo.echoed();
    const std::size_t had_main = main.out.size();
    ASSERT_TRUE(*loop_->run_until(
        [&] { return echo.echoed() > had + 600'000 && main.out.size() > had_main + 1000; }, soon()))
        << "after fork " << fork << ": " << echo.echoed() - had << " bytes";
    const auto reply = snapshot(**client);
    times += std::to_string(reply.stopped_ms) + " ";
    ASSERT_FALSE(main.ended());
    for (const auto& name : {reply.saved.delta_file, reply.saved.extents_file, reply.saved.device_state_file})
      ::unlinkat(parent->dir(), name.c_str(), 0);
  }
  RecordProperty("stopped_ms", times);
  EXPECT_EQ(echo.finish(), "");
  std::istringstream lines(main.out.substr(0, main.out.rfind('\n')));
  std::uint64_t expected = 0;
  for (std::string line; std::getline(lines, line);) ASSERT_EQ(line, std::to_string(++expected));
  EXPECT_GT(expected, 1000U);
  const auto date = parent->shell(**client, "date +%s");
  EXPECT_NEAR(std::stod(date->out), static_cast<double>(::time(nullptr)), 2);
}

TEST_F(ForkGuest, AFileThatIsBeingWrittenIsWholeAfterForks) {
  auto parent = from_base({"sleep", "1000"});
  must_start(*parent, LaunchMode::kFromBase);
  auto client = parent->connect();
  ASSERT_TRUE(client);
  auto other = parent->connect();
  ASSERT_TRUE(other);
  OpenRequest request;
  request.exec.exec_id = "writer";
  request.exec.argv = {"/bin/sh", "-c",
                       "head -c 12000000 /dev/urandom > /a; sha256sum < /a > /sum; cat /a > /b; sync; "
                       "sha256sum /a /b; cat /sum"};
  Attached writer;
  StreamHandler handler;
  handler.on_data = [&writer](Channel, std::string_view bytes) { writer.out += bytes; };
  handler.on_exit = [&writer](const ExitFacts& facts) { writer.facts = facts; };
  handler.on_error = [&writer](const Error& error) { writer.error = error; };
  ASSERT_TRUE((*other)->open(request, std::move(handler)));
  int forks = 0;
  while (!writer.ended() && forks < 8) {
    ASSERT_FALSE(snapshot(**client).disk_chain.empty());
    ++forks;
    (void)loop_->run_until([&] { return writer.ended(); }, Clock::now() + std::chrono::milliseconds(300));
  }
  ASSERT_TRUE(*loop_->run_until([&] { return writer.ended(); }, soon()));
  EXPECT_GT(forks, 1);
  ASSERT_TRUE(writer.facts) << writer.error->message;
  std::set<std::string> sums;
  std::istringstream lines(writer.out);
  std::size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) sums.insert(line.substr(0, 64));
  EXPECT_EQ(count, 3U) << writer.out;
  EXPECT_EQ(sums.size(), 1U) << writer.out;
}

TEST_F(ForkGuest, AForkedParentPausesAndResumes) {
  auto parent = from_base({"/bin/sh", "-c", "while true; do echo tick; sleep 0.1; done"});
  must_start(*parent, LaunchMode::kFromBase);
  auto client = parent->connect();
  ASSERT_TRUE(client);
  std::string sums;
  for (int round = 0; round < 3; ++round) {
    const std::string file = "m" + std::to_string(round);
    const auto sum = parent->shell(**client, "cd /dev/shm; head -c 3000000 /dev/urandom > " + file + "; cp " +
                                                 file + " /; sha256sum " + file);
    ASSERT_TRUE(sum);
    sums += sum->out;
    const auto reply = snapshot(**client);
    ASSERT_FALSE(reply.disk_chain.empty());
    if (round == 1) continue;
    ASSERT_TRUE((*client)->call(kPause, {}, soon()));
    EXPECT_EQ(parent->wait().value_or(-1), 0);
    parent->record = *parent->read();
    EXPECT_EQ(parent->record.disk_chain.size(), reply.disk_chain.size() + 1);
    must_start(*parent, LaunchMode::kResume);
    client = parent->connect();
    ASSERT_TRUE(client);
  }
  for (const char* place : {"/dev/shm", "/"}) {
    const auto again = parent->shell(
        **client, std::string("echo 3 > /proc/sys/vm/drop_caches; cd ") + place + "; sha256sum m?");
    ASSERT_TRUE(again);
    EXPECT_EQ(again->out, sums) << place;
  }
}

// --- what the parent's processes hold afterwards

using FileId = std::pair<dev_t, ino_t>;

// What a process can write of `files`, through descriptors or shared mappings.
std::vector<std::string> writable(int pid, const std::map<FileId, std::string>& files) {
  std::vector<std::string> found;
  const std::string proc = "/proc/" + std::to_string(pid);
  std::error_code error;
  for (const auto& entry : std::filesystem::directory_iterator(proc + "/fd", error)) {
    struct stat info{};
    if (::stat(entry.path().c_str(), &info) != 0) continue;
    const auto file = files.find({info.st_dev, info.st_ino});
    if (file == files.end()) continue;
    std::ifstream fdinfo(proc + "/fdinfo/" + entry.path().filename().string());
    std::string word;
    while (fdinfo >> word && word != "flags:") {
    }
    fdinfo >> word;
    if ((std::stoul(word, nullptr, 8) & O_ACCMODE) != O_RDONLY) found.push_back(file->second);
  }
  EXPECT_FALSE(error) << error.message();
  std::ifstream maps(proc + "/maps");
  for (std::string line; std::getline(maps, line);)
    if (line.find(" rw-s ") != std::string::npos || line.find(" -w-s ") != std::string::npos)
      for (const auto& [id, name] : files)
        if (line.find(" " + std::to_string(id.second) + " ") != std::string::npos)
          found.push_back(name + " (mapped)");
  return found;
}

std::set<int> processes_of(int shim) {
  std::set<int> found{shim};
  for (const auto& entry : std::filesystem::directory_iterator("/proc")) {
    const int pid = std::atoi(entry.path().filename().c_str());
    std::ifstream stat(entry.path() / "stat");
    std::string text;
    std::getline(stat, text);
    const auto name_end = text.rfind(')');
    int parent = 0;
    if (pid > 0 && name_end != std::string::npos &&
        std::sscanf(text.c_str() + name_end, ") %*c %d", &parent) == 1 && found.contains(parent))
      found.insert(pid);
  }
  return found;
}

TEST_F(ForkGuest, NoProcessOfTheParentCanWriteWhatItsChildrenRead) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root may look at the descriptors of a hypervisor";
  auto parent = from_base({"sleep", "1000"});
  must_start(*parent, LaunchMode::kFromBase);
  auto client = parent->connect();
  ASSERT_TRUE(client);
  std::set<int> pids{hypervisor_pid(**client)};
  std::map<FileId, std::string> shared;
  std::uint64_t cpu_ns = 0;
  for (std::size_t fork = 1; fork <= 3; ++fork) {
    ASSERT_TRUE(parent->shell(**client, "echo x >> /x; sync"));
    const auto reply = snapshot(**client);
    std::vector<std::string> names = reply.disk_chain;
    for (const auto& name : {reply.saved.delta_file, reply.saved.extents_file, reply.saved.device_state_file})
      names.push_back(name);
    for (const auto& name : names) {
      struct stat info{};
      ASSERT_EQ(::fstatat(parent->dir(), name.c_str(), &info, 0), 0) << name;
      shared[{info.st_dev, info.st_ino}] = name;
    }
    const int pid = hypervisor_pid(**client);
    EXPECT_TRUE(pids.insert(pid).second) << "the same process goes on";
    const auto alive = processes_of(parent->pid());
    EXPECT_EQ(alive.size(), 3U) << "shim, starter, hypervisor";
    EXPECT_TRUE(alive.contains(pid));
    for (const int one : pids) EXPECT_EQ(::kill(one, 0) == 0, one == pid);
    for (const int one : alive) EXPECT_THAT(writable(one, shared), ::testing::IsEmpty()) << one;
    // Its own node is writable, so looking finds what is there.
    struct stat top{};
    const std::string name = parent->read()->disk_chain.back();
    ASSERT_EQ(::fstatat(parent->dir(), name.c_str(), &top, 0), 0);
    EXPECT_THAT(writable(pid, {{{top.st_dev, top.st_ino}, name}}), ::testing::Contains(name));
    // What it has cost goes on from process to process, and is that of the new one.
    const auto info = ShimInfo::decode(as_bytes((*client)->call(kInfo, {}, soon()).value()));
    EXPECT_GT(info->cpu_ns, cpu_ns);
    EXPECT_GT(info->hypervisor_private_bytes, 1U << 20);
    cpu_ns = info->cpu_ns;
  }
}

TEST_F(ForkGuest, AKilledShimTakesAllOfItsProcessesAlong) {
  auto parent = from_base();
  must_start(*parent, LaunchMode::kFromBase);
  auto client = parent->connect();
  ASSERT_TRUE(client);
  ASSERT_FALSE(snapshot(**client).disk_chain.empty());
  std::vector<UniqueFd> others;
  for (const int pid : processes_of(parent->pid()))
    if (pid != parent->pid()) others.emplace_back(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
  ASSERT_EQ(others.size(), 2U) << "starter and hypervisor";
  parent->kill(SIGKILL);
  ASSERT_TRUE(parent->wait());
  for (const auto& one : others) {
    pollfd ended{one.get(), POLLIN, 0};
    EXPECT_EQ(::poll(&ended, 1, 5000), 1) << "a process outlived its shim";
  }
}

}  // namespace
}  // namespace drupe
