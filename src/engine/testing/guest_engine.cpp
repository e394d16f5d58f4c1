#include "engine/testing/guest_engine.h"

#include <csignal>
#include <cstdlib>

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/files.h"
#include "base/ids.h"
#include "base/tar_encode.h"
#include "image/config.h"
#include "image/store.h"
#include "shim/messages.h"

namespace drupe {
namespace {

constexpr const char* kBusybox = "/bin/busybox";
constexpr std::size_t kMostBusybox = std::size_t{8} << 20;

std::string entry(std::string name, char type, std::string_view bytes = {}, std::string link = {}) {
  TarEntry head;
  head.name = std::move(name);
  head.type = type;
  head.mode = 0755;
  head.size = bytes.size();
  head.link = std::move(link);
  return encode_tar_entry(head) + std::string(bytes) + std::string(tar_padding(bytes.size()), '\0');
}

Result<UniqueFd> busybox_tar() {
  DRUPE_ASSIGN(const std::string busybox, read_file(AT_FDCWD, kBusybox, kMostBusybox));
  std::string tar = entry("bin/busybox", 'f', busybox);
  for (const char* applet :
       {"sh", "cat", "echo", "sleep", "true", "ls", "hostname", "sync", "mkdir", "kill", "ps", "nslookup"})
    tar += entry(std::string("bin/") + applet, 'l', {}, "busybox");
  for (const char* directory : {"root", "tmp", "etc"}) tar += entry(directory, 'd');
  tar += entry("etc/passwd", 'f', "root:x:0:0:root:/root:/bin/sh\n") + tar_end();
  UniqueFd fd(::memfd_create("busybox-tar", MFD_CLOEXEC));
  if (!fd.valid()) return fail_sys("Making a memory file failed", errno);
  DRUPE_TRY(write_all(fd.get(), tar));
  if (::lseek(fd.get(), 0, SEEK_SET) != 0) return fail_sys("Rewinding failed", errno);
  return fd;
}

std::string guest_directory() {
  const char* chosen = std::getenv("DRUPE_GUEST_DIR");
  return chosen != nullptr ? chosen : std::string(DRUPE_BUILD_DIR) + "/guest";
}

std::string why_unavailable() {
  for (const std::string& path : {guest_directory() + "/vmlinux", guest_directory() + "/initramfs.cpio",
                                  std::string(kBusybox), std::string("/usr/bin/qemu-system-x86_64")})
    if (::access(path.c_str(), R_OK) != 0) return path + " is missing";
  return {};
}

}  // namespace

EngineOptions GuestEngineTest::engine_options() {
  EngineOptions options;
  options.home = home_;
  options.binary_dir = std::string(DRUPE_BUILD_DIR) + "/bin";
  options.guest_dir = guest_directory();
  return options;
}

SandboxOptions GuestEngineTest::sandbox_options() {
  SandboxOptions options;
  options.image = kImage;
  options.memory_mib = 256;
  options.idle = true;
  options.pull = PullPolicy::kNever;
  return options;
}

void GuestEngineTest::SetUpTestSuite() {
  unavailable_ = why_unavailable();
  if (!unavailable_.empty()) return;
  const char* base = std::getenv("TMPDIR");
  home_ = std::string(base == nullptr ? "/tmp" : base) + "/drupe-engine-guest-test-" + random_id();
  auto engine = Engine::open(engine_options());
  ASSERT_TRUE(engine) << engine.error().message;
  const auto store = (*engine)->images();
  ASSERT_TRUE(store) << store.error().message;
  const auto tar = busybox_tar();
  ASSERT_TRUE(tar) << tar.error().message;
  ImageConfig config;
  config.env = {"PATH=/bin"};
  config.cmd = {"sh"};
  const auto image = (*store)->import_rootfs_tar(tar->get(), config, {kImage}, {});
  ASSERT_TRUE(image) << image.error().message;
}

void GuestEngineTest::TearDownTestSuite() {
  if (home_.empty()) return;
  EXPECT_TRUE(remove_tree(AT_FDCWD, home_));
}

void GuestEngineTest::SetUp() {
  if (!unavailable_.empty()) GTEST_SKIP() << unavailable_;
  auto options = engine_options();
  options.on_note = [this](std::string_view note) { notes_.emplace_back(note); };
  auto opened = Engine::open(options);
  ASSERT_TRUE(opened) << opened.error().message;
  engine_ = std::move(*opened);
}

void GuestEngineTest::TearDown() {
  if (!engine_) return;
  const auto all = engine_->list();
  ASSERT_TRUE(all);
  for (const auto& sandbox : *all)
    EXPECT_TRUE(engine_->remove(sandbox.record.id, true)) << sandbox.record.name;
  engine_.reset();
  for (const char* name : {"sandboxes", "names", "promised", "tmp"}) {
    const auto path = home_ + "/" + name;
    EXPECT_EQ(::rmdir(path.c_str()), 0) << path << " is not empty";
    ::mkdir(path.c_str(), 0700);
  }
}

std::string GuestEngineTest::make_sandbox(const std::string& name) {
  auto options = sandbox_options();
  options.name = name;
  options.auto_remove = true;
  const auto made = engine_->create(options);
  EXPECT_TRUE(made) << made.error().message;
  if (!made) return {};
  const auto started = engine_->start(made->record.id, false, true);
  EXPECT_TRUE(started) << to_string(started.error());
  return made->record.id;
}

std::string GuestEngineTest::sh(const std::string& id, const std::string& line) {
  const auto client = engine_->connect(id, true);
  EXPECT_TRUE(client) << to_string(client.error());
  if (!client) return {};
  ExecOptions exec;
  exec.exec_id = "t" + random_id();
  exec.argv = {"sh", "-c", line};
  const auto result =
      run_command(**client, engine_->loop(), exec, {}, 65536, Clock::now() + std::chrono::minutes(2));
  EXPECT_TRUE(result) << to_string(result.error());
  if (!result) return {};
  EXPECT_EQ(result->facts.exit_code, 0) << line << ": " << result->err;
  return result->out;
}

std::string GuestEngineTest::state(const std::string& id) {
  const auto info = engine_->find(id);
  if (!info) return std::string(to_string(info.error().code));
  const auto& record = info->record;
  return std::string(to_string(record.state)) +
         (record.cause == EndCause::kNone ? "" : " " + std::string(to_string(record.cause)));
}

void GuestEngineTest::kill_shim(const std::string& id) {
  const auto client = engine_->connect(id, false);
  ASSERT_TRUE(client) << client.error().message;
  const auto reply = (*client)->call(static_cast<std::uint16_t>(ShimRequest::kInfo), {},
                                     Clock::now() + std::chrono::seconds(20));
  ASSERT_TRUE(reply);
  const auto info = ShimInfo::decode(as_bytes(*reply));
  ASSERT_TRUE(info);
  // The hypervisor's parent is the shim.
  const auto status = read_file(AT_FDCWD, "/proc/" + std::to_string(info->hypervisor_pid) + "/status", 65536);
  ASSERT_TRUE(status);
  const auto at = status->find("PPid:");
  ASSERT_NE(at, std::string::npos);
  const int shim = std::atoi(status->c_str() + at + 5);
  ASSERT_GT(shim, 1);
  ASSERT_EQ(::kill(shim, SIGKILL), 0);
  while (engine_->find(id) && engine_->find(id)->alive) ::usleep(2000);
}

}  // namespace drupe
