// A Sandbox over a fake machine, in a directory of its own, on the test's event loop.
#pragma once

#include <cstring>
#include <memory>
#include <stdexcept>
#include <string>

#include <fcntl.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/files.h"
#include "shim/client.h"
#include "shim/log_file.h"
#include "shim/sandbox.h"
#include "shim/testing/fake_guest.h"

namespace drupe::testing {

struct Attached {
  std::string out, err;
  int opened = 0;
  std::optional<ExitFacts> facts;
  std::optional<Error> error;
  [[nodiscard]] bool ended() const { return facts || error; }
};

class SandboxFixture : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(::mkdtemp(path_), nullptr);
    dir_ = std::move(*open_at(AT_FDCWD, path_, O_DIRECTORY | O_RDONLY));
    // The shim binds its socket in the current directory.
    ASSERT_EQ(::fchdir(dir_.get()), 0);
    for (const char* name : {kKernelFile, kInitramfsFile, "ram", "state"})
      ASSERT_TRUE(replace_file(dir_.get(), name, "x", Sync::kNo));
    const auto image = open_at(dir_.get(), "image.ext4", O_RDWR | O_CREAT);
    ASSERT_EQ(::ftruncate(image->get(), 1 << 30), 0);
    const auto top = open_at(dir_.get(), "disk-0.qcow2", O_RDWR | O_CREAT);
    ASSERT_TRUE(write_empty_qcow2(top->get(), 1 << 30));
    loop_ = std::move(*EventLoop::create());
    record_.id = "0123456789ab";
    record_.shape = {1, 256};
    record_.disk_bytes = 1 << 30;
    record_.disk_chain = {"image.ext4", "disk-0.qcow2"};
    record_.hostname = "tester";
    spec_.start_deadline_ms = 5000;
  }
  void TearDown() override {
    client_.reset();
    sandbox_.reset();
    ASSERT_EQ(::chdir("/"), 0);
    ASSERT_TRUE(remove_tree(AT_FDCWD, path_));
  }

  Status try_start(LaunchMode mode) {
    sandbox_.reset();
    spec_.mode = mode;
    DRUPE_TRY(write_record(dir_.get(), record_));
    SandboxHost host;
    host.dir = dir_.get();
    host.fork = fork_;
    host.placed = [this] { ++placings_; };
    host.start_network = start_network_;
    host.connect_peer = connect_peer_;
    host.remove_directory = [this] { ++directory_removals_; };
    sandbox_ = std::make_unique<Sandbox>(*loop_, hypervisor_, std::move(host), spec_, record_);
    return sandbox_->start();
  }
  void start(LaunchMode mode = LaunchMode::kBoot) {
    // Thrown, since nothing in the test makes sense without a sandbox.
    if (const auto started = try_start(mode); !started) throw std::runtime_error(started.error().message);
    if (mode == LaunchMode::kMakeBase) return;
    client_ = std::move(*ShimClient::connect(*loop_, dir_.get()));
  }
  void use_main() {
    record_.main.emplace();
    record_.main->exec_id = "main";
    record_.main->argv = {"work"};
    record_.main->stdin_open = true;
  }
  void use_saved() {
    record_.saved.emplace();
    record_.saved->device_state_file = "state";
    record_.saved->epoch = 7;
    record_.base_ram_file = "ram";
  }

  FakeAgent& agent() { return *world_.agent; }
  SandboxRecord on_disk() { return read_record(dir_.get()).value(); }
  static Deadline soon() { return Clock::now() + std::chrono::seconds(10); }
  bool wait(const std::function<bool()>& done) { return *loop_->run_until(done, soon()); }
  /// Runs everything that is ready and what follows from it.
  void settle() {
    bool done = false;
    loop_->after(std::chrono::milliseconds(20), [&] { done = true; });
    (void)loop_->run_until([&] { return done; }, soon());
  }
  Result<std::string> call(ShimRequest kind, std::string_view body = {}) {
    return client_->call(static_cast<std::uint16_t>(kind), body, soon());
  }
  Result<std::string> ping(ShimClient& client, std::string_view body = "ping") {
    return client.call(static_cast<std::uint16_t>(RequestKind::kPing), body, soon());
  }
  void serve() { ASSERT_TRUE(sandbox_->serve()); }
  bool has(const char* name) { return ::faccessat(dir_.get(), name, F_OK, 0) == 0; }

  /// Opens a stream; `into` must outlive it.
  ShimClient::StreamId open(ShimClient& client, Attached& into, OpenKind kind = OpenKind::kExec,
                            const std::string& exec_id = "e1", bool with_stdin = true) {
    OpenRequest request;
    request.kind = kind;
    request.exec.exec_id = exec_id;
    request.exec.argv = {"x"};
    request.exec.stdin_open = with_stdin;
    StreamHandler handler;
    handler.on_opened = [&into](const OpenedReply&) { ++into.opened; };
    handler.on_data = [&into](Channel channel, std::string_view bytes) {
      (channel == Channel::kStderr ? into.err : into.out) += bytes;
    };
    handler.on_exit = [&into](const ExitFacts& facts) { into.facts = facts; };
    handler.on_error = [&into](const Error& error) { into.error = error; };
    return client.open(request, std::move(handler)).value();
  }
  ShimClient::StreamId attach(ShimClient& client, Attached& into, bool with_stdin = false) {
    return open(client, into, OpenKind::kAttach, "main", with_stdin);
  }
  /// The guest's id of the stream of an exec id.
  std::uint32_t guest_stream(const std::string& exec_id) {
    std::uint32_t found = 0;
    EXPECT_TRUE(wait([&] {
      if (world_.agent == nullptr) return true;
      for (const auto& [id, request] : agent().opened)
        if (request.exec.exec_id == exec_id) found = id;
      return found != 0;
    }));
    return found;
  }
  /// A connection whose bytes the test writes itself.
  UniqueFd raw_client() {
    UniqueFd fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strcpy(address.sun_path, kSocketFile);
    EXPECT_EQ(::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
    return fd;
  }
  std::string log_text() {
    std::string text;
    std::uint64_t offset = 0;
    EXPECT_TRUE(read_log(dir_.get(), offset, [&](std::int64_t, Channel, std::string_view bytes) {
      text += bytes;
      return true;
    }));
    return text;
  }

  char path_[40] = "/tmp/drupe-sandbox-XXXXXX";
  UniqueFd dir_;
  std::unique_ptr<EventLoop> loop_;
  FakeWorld world_;
  FakeHypervisor hypervisor_{world_};
  SandboxRecord record_;
  ShimSpec spec_;
  int directory_removals_ = 0, placings_ = 0;
  int fork_ = -1;
  Network::Start start_network_;
  std::function<Result<UniqueFd>(std::string_view, Deadline)> connect_peer_;
  std::unique_ptr<Sandbox> sandbox_;
  std::unique_ptr<ShimClient> client_;
};

}  // namespace drupe::testing
