#include "base/confine.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <functional>
#include <map>
#include <sstream>

#include <fcntl.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include "base/files.h"
#include "base/spawn.h"

namespace drupe {
namespace {

using Answers = std::map<std::string, long>;

std::string check_program() {
  std::array<char, PATH_MAX> self{};
  const ssize_t size = ::readlink("/proc/self/exe", self.data(), self.size());
  const std::string path(self.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  return path.substr(0, path.rfind('/')) + "/drupe-confine-check";
}

Confinement strict() {
  Confinement confinement;
  confinement.paths = system_library_paths();
  confinement.paths.push_back(PathRule{check_program(), false, true});
  return confinement;
}

struct Pipe {
  UniqueFd read, write;
};
Pipe make_pipe() {
  std::array<int, 2> ends{};
  EXPECT_EQ(::pipe2(ends.data(), O_CLOEXEC), 0);
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

SpawnRequest request_for(const std::vector<std::string>& attempts, int output) {
  SpawnRequest request;
  request.program = check_program();
  request.argv = {"check"};
  request.argv.insert(request.argv.end(), attempts.begin(), attempts.end());
  if (const char* port = std::getenv("DRUPE_CHECK_PORT"); port != nullptr)
    request.env = {"DRUPE_CHECK_PORT=" + std::string(port)};
  request.fds = {FdMapping{output, 1}};
  return request;
}

Answers parse(const std::string& text) {
  Answers answers;
  std::istringstream in(text);
  std::string name;
  long value = 0;
  while (in >> name >> value) answers[name] = value;
  return answers;
}

// What a confined program answered; `missing` is what the host did not allow.
Answers confined(const std::vector<std::string>& attempts, const Confinement& confinement,
                 std::vector<std::string>* missing = nullptr) {
  auto pipe = make_pipe();
  auto child = spawn_confined(request_for(attempts, pipe.write.get()), confinement);
  EXPECT_TRUE(child) << to_string(child.error());
  if (!child) return {};
  pipe.write.reset();
  const auto text = read_all(pipe.read.get(), 65536);
  EXPECT_TRUE(text);
  const auto status = wait_for(child->child);
  EXPECT_TRUE(status && *status == 0) << (status ? describe_wait_status(*status) : "");
  if (missing != nullptr) *missing = child->missing;
  return parse(text.value_or(""));
}

bool host_allows_namespaces() {
  static const bool allows = [] {
    const auto missing = probe_confinement();
    return missing && missing->empty();
  }();
  return allows;
}

TEST(Confine, DangerousCallsFail) {
  const auto answers = confined(
      {"ptrace", "process_vm_readv", "pidfd_getfd", "keyctl", "bpf", "userfaultfd", "io_uring", "mount",
       "unshare", "clone_newuser", "fchmod", "fchown", "futimens", "fchmodat2", "setxattrat", "file_setattr"},
      strict());
  EXPECT_EQ(answers.size(), 16U);
  for (const auto& [name, err] : answers) EXPECT_EQ(err, EPERM) << name;
}

TEST(Confine, Clone3FallsBackToCloneWhoseFlagsCanBeSeen) {
  EXPECT_EQ(confined({"clone3"}, strict()).at("clone3"), ENOSYS);
}

TEST(Confine, SocketsOnlyWhenAllowed) {
  auto confinement = strict();
  EXPECT_EQ(confined({"socket", "inet"}, confinement), (Answers{{"socket", EACCES}, {"inet", EACCES}}));
  confinement.allow_sockets = true;
  EXPECT_EQ(confined({"socket", "inet"}, confinement), (Answers{{"socket", 0}, {"inet", 0}}));
}

TEST(Confine, TheHostsNetworkStaysWhenItIsWanted) {
  if (!host_allows_namespaces()) GTEST_SKIP() << "this host does not allow namespaces";
  auto confinement = strict();
  confinement.allow_sockets = true;
  // A port that is taken in this namespace is free in any other.
  const UniqueFd taken(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  ASSERT_EQ(::bind(taken.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  ASSERT_EQ(::listen(taken.get(), 1), 0);
  ASSERT_EQ(::getsockname(taken.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  ASSERT_EQ(::setenv("DRUPE_CHECK_PORT", std::to_string(ntohs(address.sin_port)).c_str(), 1), 0);
  EXPECT_NE(confined({"connect_port"}, confinement).at("connect_port"), 0);
  confinement.host_network = true;
  EXPECT_EQ(confined({"connect_port", "pid"}, confinement), (Answers{{"connect_port", 0}, {"pid", 1}}));
}

TEST(Confine, NothingIsReachableButTheLibrariesAndTheyAreReadOnly) {
  const auto answers =
      confined({"read_etc", "read_tmp", "read_proc", "read_usr", "write_usr", "write_root"}, strict());
  EXPECT_THAT(answers.at("read_etc"), testing::AnyOf(EACCES, ENOENT));
  EXPECT_THAT(answers.at("read_tmp"), testing::AnyOf(EACCES, ENOENT));
  EXPECT_THAT(answers.at("read_proc"), testing::AnyOf(EACCES, ENOENT));
  EXPECT_EQ(answers.at("read_usr"), 0);
  EXPECT_THAT(answers.at("write_usr"), testing::AnyOf(EACCES, EROFS));
  EXPECT_THAT(answers.at("write_root"), testing::AnyOf(EACCES, EROFS));
}

TEST(Confine, LandlockHoldsWithoutNamespaces) {
  auto confinement = strict();
  confinement.namespaces = false;
  const auto answers = confined({"read_etc", "read_tmp", "read_usr", "write_usr"}, confinement);
  EXPECT_EQ(answers.at("read_etc"), EACCES);
  EXPECT_EQ(answers.at("read_tmp"), EACCES);
  EXPECT_EQ(answers.at("read_usr"), 0);
  EXPECT_EQ(answers.at("write_usr"), EACCES);
}

TEST(Confine, OnlyItsOwnProgramCanBeExecuted) {
  EXPECT_EQ(confined({"exec_true"}, strict()).at("exec_true"), EACCES);
  auto open = strict();
  open.paths.push_back(PathRule{"/usr/bin/true", false, true});
  EXPECT_EQ(confined({"exec_true"}, open).at("exec_true"), 0);
}

TEST(Confine, NoPrivilegesNoCoreNoForeignDescriptors) {
  auto confinement = strict();
  confinement.max_open_files = 77;
  const UniqueFd stray(::dup(STDIN_FILENO));  // without O_CLOEXEC on purpose
  const auto answers =
      confined({"no_new_privs", "capabilities", "core_limit", "file_limit", "highest_fd"}, confinement);
  EXPECT_EQ(answers, (Answers{{"no_new_privs", 1},
                              {"capabilities", 0},
                              {"core_limit", 0},
                              {"file_limit", 77},
                              {"highest_fd", 2}}));
}

TEST(Confine, RunsUnderAnIdOfItsOwnInNamespacesOfItsOwn) {
  if (!host_allows_namespaces()) GTEST_SKIP() << "this host does not allow namespaces";
  std::vector<std::string> missing;
  const auto answers = confined({"uid", "pid"}, strict(), &missing);
  EXPECT_THAT(missing, testing::IsEmpty());
  EXPECT_EQ(answers.at("pid"), 1);
  if (::getuid() == 0) {
    EXPECT_GE(answers.at("uid"), 0x40000000);
    EXPECT_NE(answers.at("uid"), confined({"uid"}, strict()).at("uid")) << "two helpers share an id";
  } else {
    EXPECT_EQ(answers.at("uid"), static_cast<long>(::getuid()));
  }
}

// Runs `call` as root of a user namespace that has the ids below `count`; its status, -1 without a namespace.
int within_ids(unsigned count, const std::function<int()>& call) {
  const Pipe ready = make_pipe();
  Pipe go = make_pipe();
  const pid_t pid = ::fork();
  if (pid == 0) {
    const char made = ::unshare(CLONE_NEWUSER) == 0 ? 'y' : 'n';
    char byte = 0;
    go.write.reset();
    if (::write(ready.write.get(), &made, 1) != 1 || ::read(go.read.get(), &byte, 1) != 1) ::_exit(100);
    ::_exit(::geteuid() == 0 ? call() : 101);
  }
  char made = 0;
  EXPECT_EQ(::read(ready.read.get(), &made, 1), 1);
  const std::string proc = "/proc/" + std::to_string(pid) + "/";
  const auto write = [&](const char* name, const std::string& text) {
    const auto file = open_at(AT_FDCWD, proc + name, O_WRONLY);
    return file && write_all(file->get(), text);
  };
  if (count == 1) write("setgroups", "deny");
  const std::string size = " " + std::to_string(count);
  const bool mapped = made == 'y' && write("uid_map", "0 " + std::to_string(::geteuid()) + size) &&
                      write("gid_map", "0 " + std::to_string(::getegid()) + size);
  if (mapped) {
    EXPECT_EQ(::write(go.write.get(), "g", 1), 1);
  }
  go.write.reset();
  int status = 0;
  ::waitpid(pid, &status, 0);
  return mapped ? WEXITSTATUS(status) : -1;
}

TEST(Confine, AUserNamespaceOfOneIdIsEnoughAndIsTold) {
  const int status = within_ids(1, [] {
    std::vector<std::string> missing;
    const auto answers = confined({"uid", "capabilities"}, strict(), &missing);
    if (answers != Answers{{"uid", 0}, {"capabilities", 0}}) return 1;
    return std::ranges::any_of(missing, [](const auto& one) { return one.starts_with("an id of its own"); })
               ? 0
               : 2;
  });
  if (status < 0) GTEST_SKIP() << "no user namespace here";
  EXPECT_EQ(status, 0);
}

TEST(Confine, AUserNamespaceOfSomeIdsHasOneForIt) {
  constexpr unsigned kIds = 65536;
  const int status = within_ids(kIds, [] {
    const auto answers = confined({"uid"}, strict());
    return answers.at("uid") >= kIds / 2 && answers.at("uid") < kIds ? 0 : 1;
  });
  if (status < 0) GTEST_SKIP() << "not root, or no user namespace here";
  EXPECT_EQ(status, 0);
}

TEST(Confine, DiesWithItsParent) {
  auto pipe = make_pipe();
  const pid_t parent = ::fork();
  if (parent == 0) {
    auto request = request_for({"death_signal", "wait_for_end"}, pipe.write.get());
    request.die_with_parent = true;
    const auto child = spawn_confined(request, strict());
    ::pause();
    ::_exit(child ? 0 : 1);
  }
  pipe.write.reset();
  std::string text;
  char c = 0;
  while ((text.empty() || text.back() != '\n') && ::read(pipe.read.get(), &c, 1) == 1) text += c;
  EXPECT_EQ(text, "death_signal " + std::to_string(SIGKILL) + "\n");
  ::kill(parent, SIGKILL);
  ::waitpid(parent, nullptr, 0);
  // The grandchild held the pipe's other end: its end is the end of the file.
  EXPECT_EQ(::read(pipe.read.get(), &c, 1), 0);
}

TEST(Confine, AProgramThatIsMissingIsAnErrorThatNamesIt) {
  SpawnRequest request;
  request.program = "/usr/bin/no-such-program";
  request.argv = {"x"};
  auto confinement = strict();
  const auto child = spawn_confined(request, confinement);
  ASSERT_FALSE(child);
  EXPECT_THAT(child.error().message, testing::HasSubstr("no-such-program"));
}

TEST(Confine, SelfConfinementKeepsOpenDirectoriesAndClosesTheRest) {
  const std::string scratch = testing::TempDir() + "confine-self";
  ASSERT_TRUE(make_dirs(scratch));
  const pid_t child = ::fork();
  if (child == 0) {
    const auto dir = open_at(AT_FDCWD, scratch, O_DIRECTORY | O_RDONLY);
    if (!dir) ::_exit(10);
    Confinement confinement;
    confinement.dirs = {DirRule{dir->get(), true}};
    confinement.non_dumpable = true;
    const auto missing = confine_self(confinement);
    if (!missing || !missing->empty()) ::_exit(11);
    if (!replace_file(dir->get(), "file", "text", Sync::kYes)) ::_exit(12);
    // Another process would follow what stands in a known file's place.
    if (::symlinkat("/etc/passwd", dir->get(), "link") == 0 || errno != EACCES) ::_exit(17);
    if (::mkdirat(dir->get(), "folder", 0700) == 0 || errno != EACCES) ::_exit(18);
    if (::fchmodat(dir->get(), "file", 0644, 0) == 0 || errno != EPERM) ::_exit(19);
    if (::open("/etc/passwd", O_RDONLY | O_CLOEXEC) >= 0 || errno != EACCES) ::_exit(13);
    if (::open("/usr", O_RDONLY | O_CLOEXEC) >= 0) ::_exit(14);
    if (::prctl(PR_GET_DUMPABLE, 0, 0, 0, 0) != 0) ::_exit(15);
    if (::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0) >= 0) ::_exit(16);
    ::_exit(0);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  EXPECT_EQ(WEXITSTATUS(status), 0) << describe_wait_status(status);
  ASSERT_TRUE(remove_tree(AT_FDCWD, scratch));
}

TEST(Spawn, TheChildSeesExactlyTheMappedDescriptors) {
  auto pipe = make_pipe();
  const UniqueFd stray(::dup(STDIN_FILENO));  // without O_CLOEXEC on purpose
  auto request = request_for({"highest_fd"}, pipe.write.get());
  // A permutation whose sources are others' targets.
  request.fds.push_back(FdMapping{pipe.write.get(), 7});
  request.fds.push_back(FdMapping{7, 5});
  ASSERT_GE(::dup2(pipe.read.get(), 7), 0);
  const auto child = spawn(request);
  ::close(7);
  ASSERT_TRUE(child) << to_string(child.error());
  pipe.write.reset();
  EXPECT_EQ(parse(read_all(pipe.read.get(), 4096).value_or("")), (Answers{{"highest_fd", 7}}));
  EXPECT_EQ(wait_for(*child).value_or(-1), 0);
}

TEST(Spawn, ThePidfdTellsTheEndAndTheStatusIsTheChilds) {
  SpawnRequest request;
  request.program = "/bin/sh";
  request.argv = {"sh", "-c", "exit 7"};
  const auto child = spawn(request);
  ASSERT_TRUE(child);
  EXPECT_EQ(describe_wait_status(wait_for(*child).value_or(-1)), "exit status 7");
}

TEST(Spawn, AMissingProgramIsAnError) {
  SpawnRequest request;
  request.program = "/no/such/program";
  request.argv = {"x"};
  const auto child = spawn(request);
  ASSERT_FALSE(child);
  EXPECT_EQ(child.error().code, ErrorCode::kNotFound);
}

}  // namespace
}  // namespace drupe
