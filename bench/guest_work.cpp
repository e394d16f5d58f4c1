#include "guest_work.h"

#include <cerrno>
#include <thread>

#include <fcntl.h>
#include <unistd.h>

#include "base/files.h"
#include "base/spawn.h"
#include "host_facts.h"
#include "shim/messages.h"

namespace drupe::bench {
namespace {

constexpr std::chrono::seconds kLimit{300};
constexpr std::size_t kMostOutput = 1U << 20;
constexpr std::size_t kMostProgram = 16U << 20;
constexpr std::chrono::seconds kSettleLimit{20};
constexpr std::chrono::milliseconds kSettlePoll{5};
constexpr const char* kBurdenMemoryMib = "60";
constexpr const char* kBurdenDiskMib = "500";

std::string next_exec_id() {
  static unsigned long number = 0;
  return "bench." + std::to_string(::getpid()) + "." + std::to_string(number++);
}

ExecOptions exec_options(const std::vector<std::string>& argv) {
  ExecOptions options;
  options.exec_id = next_exec_id();
  options.argv = argv;
  return options;
}

Status command_failed(const std::vector<std::string>& argv, const ExecResult& result) {
  std::string why = result.facts.error ? result.facts.error->message
                                       : "exit code " + std::to_string(result.facts.exit_code);
  return fail(ErrorCode::kGuest, "In the guest, " + argv.front() + " failed: " + why + " " + result.err);
}

}  // namespace

Result<std::unique_ptr<Guest>> Guest::start(Bench& bench, std::uint64_t memory_mib) {
  SandboxOptions options;
  options.image = bench.settings.image;
  options.memory_mib = memory_mib;
  options.idle = true;
  options.detached = true;
  options.pull = PullPolicy::kNever;
  DRUPE_ASSIGN(const SandboxInfo made, bench.engine.create(options));
  auto guest = adopt(bench, made.record.id);
  DRUPE_TRY(bench.engine.start(made.record.id, false, false));
  DRUPE_TRY(guest->connect());
  return guest;
}

std::unique_ptr<Guest> Guest::adopt(Bench& bench, std::string id) {
  return std::unique_ptr<Guest>(new Guest(bench, std::move(id)));
}

Guest::~Guest() {
  client_.reset();
  static_cast<void>(bench_.engine.remove(id_, true));
}

Status Guest::connect() {
  DRUPE_ASSIGN(client_, bench_.engine.connect(id_, false));
  return {};
}

Result<double> ping(Bench&, ShimClient& client) {
  const auto begun = Clock::now();
  DRUPE_TRY(client.call(static_cast<std::uint16_t>(RequestKind::kPing), "p", Clock::now() + kLimit));
  return ms_since(begun);
}

Result<double> Guest::ping() {
  return bench::ping(bench_, *client_);
}

Result<ExecResult> Guest::run(const std::vector<std::string>& argv) {
  return run_command(*client_, bench_.engine.loop(), exec_options(argv), {}, kMostOutput,
                     Clock::now() + kLimit);
}

Result<double> Guest::timed(const std::vector<std::string>& argv) {
  const auto begun = Clock::now();
  DRUPE_ASSIGN(const ExecResult result, run(argv));
  const double took = ms_since(begun);
  if (result.facts.exit_code != 0) DRUPE_TRY(command_failed(argv, result));
  return took;
}

namespace {

/// Opens an exec and waits for its first output. What happens to the stream afterwards is not the caller's
/// business.
Result<double> wait_for_output(Bench& bench, ShimClient& client, const std::vector<std::string>& argv,
                               bool to_the_end) {
  struct State {
    double first = -1;
    bool ended = false;
    std::optional<Error> error;
  };
  auto state = std::make_shared<State>();
  const auto begun = Clock::now();
  OpenRequest request;
  request.exec = exec_options(argv);
  StreamHandler handler;
  handler.on_data = [state, begun](Channel, std::string_view) {
    if (state->first < 0) state->first = ms_since(begun);
  };
  handler.on_exit = [state](const ExitFacts& facts) {
    state->ended = true;
    state->error = facts.error;
  };
  handler.on_error = [state](const Error& error) {
    state->ended = true;
    state->error = error;
  };
  DRUPE_TRY(client.open(request, std::move(handler)));
  const auto done = [&] { return state->ended || (!to_the_end && state->first >= 0); };
  DRUPE_ASSIGN(const bool came, bench.engine.loop().run_until(done, Clock::now() + kLimit));
  if (!came) return fail(ErrorCode::kTimeout, argv.front() + " wrote nothing in time");
  if (state->error) return std::unexpected(*state->error);
  if (state->first < 0) return fail(ErrorCode::kGuest, argv.front() + " ended without a word");
  return state->first;
}

}  // namespace

Result<double> first_output(Bench& bench, ShimClient& client, const std::vector<std::string>& argv) {
  return wait_for_output(bench, client, argv, true);
}

Result<double> Guest::first_output(const std::vector<std::string>& argv) {
  return bench::first_output(bench_, *client_, argv);
}

Status Guest::begin(const std::vector<std::string>& argv) {
  DRUPE_TRY(wait_for_output(bench_, *client_, argv, false));
  return {};
}

Status Guest::upload(const std::string& path, std::string_view bytes, std::uint32_t mode) {
  struct State {
    bool ended = false;
    std::optional<Error> error;
    ShimClient::StreamId stream = 0;
    std::string_view rest;
  };
  auto state = std::make_shared<State>();
  state->rest = bytes;
  OpenRequest request;
  request.kind = OpenKind::kWriteFile;
  request.file.path = path;
  request.file.mode = mode;
  const auto feed = [this, state] {
    if (state->rest.empty()) return;
    state->rest.remove_prefix(client_->write(state->stream, state->rest));
    if (state->rest.empty()) client_->close_stdin(state->stream);
  };
  StreamHandler handler;
  handler.on_writable = feed;
  handler.on_exit = [state](const ExitFacts& facts) {
    state->ended = true;
    state->error = facts.error;
  };
  handler.on_error = [state](const Error& error) {
    state->ended = true;
    state->error = error;
  };
  DRUPE_ASSIGN(state->stream, client_->open(request, std::move(handler)));
  feed();
  if (bytes.empty()) client_->close_stdin(state->stream);
  DRUPE_ASSIGN(const bool came,
               bench_.engine.loop().run_until([&] { return state->ended; }, Clock::now() + kLimit));
  if (!came) return fail(ErrorCode::kTimeout, "Writing " + path + " took too long");
  if (state->error) return std::unexpected(*state->error);
  return {};
}

Status Guest::install(const std::string& program) {
  DRUPE_ASSIGN(const std::string bytes,
               read_file(AT_FDCWD, bench_.settings.tool_dir + "/" + program, kMostProgram));
  DRUPE_TRY(timed({"/bin/mkdir", "-p", "/bench"}));
  return upload("/bench/" + program, bytes, 0755);
}

Result<ShimInfo> Guest::info() {
  DRUPE_ASSIGN(const std::string body,
               client_->call(static_cast<std::uint16_t>(ShimRequest::kInfo), {}, Clock::now() + kLimit));
  return ShimInfo::decode(as_bytes(body));
}

Result<std::unique_ptr<Guest>> start_burdened(Bench& bench, std::uint64_t memory_mib,
                                              const std::string& writer) {
  DRUPE_ASSIGN(auto guest, Guest::start(bench, memory_mib));
  DRUPE_TRY(guest->install("burden"));
  DRUPE_TRY(guest->timed({"/bench/burden", writer, "/bench/data", kBurdenDiskMib}));
  DRUPE_TRY(guest->begin({"/bench/burden", "memory", kBurdenMemoryMib}));
  return guest;
}

Result<std::string> run_program(const std::vector<std::string>& argv, const std::vector<std::string>& env) {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return fail_sys("Making a pipe failed", errno);
  const UniqueFd out(ends[0]);
  UniqueFd in(ends[1]);
  SpawnRequest request;
  request.program = argv.front();
  request.argv = argv;
  request.env = env;
  if (request.env.empty()) request.env = {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C"};
  request.fds = {{in.get(), 1}, {2, 2}};
  DRUPE_ASSIGN(const ChildProcess child, spawn(request));
  in.reset();
  auto text = read_all(out.get(), kMostOutput);
  DRUPE_ASSIGN(const int status, wait_for(child));
  if (!text) return text;
  if (status != 0) return fail(ErrorCode::kHost, argv.front() + " failed: " + describe_wait_status(status));
  return text;
}

std::vector<std::string> drupe_environment(const Bench& bench) {
  return {"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL=C.UTF-8", "DRUPE_HOME=" + bench.engine.home()};
}

Result<std::string> run_drupe(Bench& bench, std::vector<std::string> argv) {
  argv.insert(argv.begin(), bench.settings.binary_dir + "/drupe");
  return run_program(argv, drupe_environment(bench));
}

std::size_t count_sandboxes(const Bench& bench) {
  return count_entries(bench.engine.home() + "/sandboxes");
}

void settle(Bench& bench, std::size_t sandboxes) {
  const auto deadline = Clock::now() + kSettleLimit;
  while (count_sandboxes(bench) > sandboxes && Clock::now() < deadline)
    std::this_thread::sleep_for(kSettlePoll);
  std::this_thread::sleep_for(kSettlePoll);
}

}  // namespace drupe::bench
