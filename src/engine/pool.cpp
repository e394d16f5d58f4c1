#include "engine/pool.h"

#include <algorithm>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>

#include <pthread.h>
#include <unistd.h>

#include "engine/admission.h"
#include "engine/engine_impl.h"
#include "engine/options.h"

namespace drupe {
namespace {

constexpr std::uint32_t kMostSize = 64;
constexpr std::chrono::seconds kExerciseLimit{30};
constexpr std::chrono::seconds kClaimLimit{20};
constexpr std::chrono::seconds kRetryAfterFailure{5};
constexpr std::size_t kExerciseOutput = 4096;
/// The claim travels in one frame.
constexpr std::size_t kMostClaimBytes = 60'000;

struct Ready {
  SandboxInfo sandbox;
  Deadline next_keep_alive;
};

class PoolImpl final : public Pool {
 public:
  PoolImpl(std::unique_ptr<Engine> engine, PoolOptions options)
      : engine_(std::move(engine)), options_(std::move(options)) {}
  PoolImpl(const PoolImpl&) = delete;
  PoolImpl& operator=(const PoolImpl&) = delete;
  ~PoolImpl() override {
    {
      const std::lock_guard guard(mutex_);
      ending_ = true;
    }
    changed_.notify_all();
    if (worker_.joinable()) worker_.join();
    for (const Ready& ready : ready_) static_cast<void>(engine_->remove(ready.sandbox.record.id, true));
  }

  void start() {
    worker_ = std::thread([this] { work(); });
    pthread_setname_np(worker_.native_handle(), "drupe-pool");
  }

  Result<Claim> claim(Engine& engine, const SandboxOptions& options) override;
  [[nodiscard]] PoolStatus status() const override {
    const std::lock_guard guard(mutex_);
    PoolStatus status = status_;
    status.ready = static_cast<std::uint32_t>(ready_.size());
    return status;
  }
  bool wait_ready(std::uint32_t count, Deadline deadline) override {
    std::unique_lock guard(mutex_);
    return changed_.wait_until(guard, deadline, [&] { return ready_.size() >= count; });
  }

 private:
  /// The thread: makes, exercises and gives back, without the mutex while it works.
  void work();
  Result<Ready> make_one();
  Status exercise(const std::string& id, const std::vector<std::string>& argv);
  void keep_alive(Ready ready);
  [[nodiscard]] bool memory_is_short() const;
  std::optional<Ready> take_ready();
  Result<Claim> claim_ready(Engine& engine, Ready ready, const SandboxOptions& options);

  std::unique_ptr<Engine> engine_;  ///< The thread's.
  const PoolOptions options_;
  mutable std::mutex mutex_;  ///< Guards everything below.
  std::condition_variable changed_;
  std::deque<Ready> ready_;  ///< Oldest first.
  PoolStatus status_;
  bool ending_ = false;
  Deadline not_before_{};  ///< No new one is made before, after a failure.
  std::thread worker_;
};

bool PoolImpl::memory_is_short() const {
  const auto room = memory_room();
  return room && room->available_mib < options_.least_available_mib;
}

Status PoolImpl::exercise(const std::string& id, const std::vector<std::string>& argv) {
  DRUPE_ASSIGN(const auto client, engine_->connect(id, false));
  ExecOptions exec;
  exec.exec_id = "pool." + std::to_string(Clock::now().time_since_epoch().count());
  exec.argv = argv;
  DRUPE_ASSIGN(const ExecResult result, run_command(*client, engine_->loop(), exec, {}, kExerciseOutput,
                                                    Clock::now() + kExerciseLimit));
  if (result.facts.error && result.facts.exit_code != 127) return std::unexpected(*result.facts.error);
  return {};
}

Result<Ready> PoolImpl::make_one() {
  SandboxOptions sandbox;
  sandbox.image = options_.image;
  sandbox.memory_mib = options_.memory_mib;
  sandbox.cpus = options_.cpus;
  sandbox.disk_bytes = options_.disk_bytes;
  sandbox.idle = true;
  sandbox.auto_remove = true;
  sandbox.labels = {{kPoolLabel, "1"}};
  DRUPE_ASSIGN(SandboxInfo made, engine_->create(sandbox));
  const std::string id = made.record.id;
  auto started = engine_->start(id, false, true);
  Status good;
  if (!started) good = std::unexpected(std::move(started).error());
  for (const auto& argv : options_.exercises)
    if (good) good = exercise(id, argv);
  if (good) {
    auto found = engine_->find(id);
    if (found) return Ready{std::move(*found), Clock::now() + options_.keep_alive};
    good = std::unexpected(std::move(found).error());
  }
  static_cast<void>(engine_->remove(id, true));
  return std::unexpected(std::move(good).error());
}

void PoolImpl::keep_alive(Ready ready) {
  const std::string id = ready.sandbox.record.id;
  const Status alive =
      memory_is_short() ? Status(fail(ErrorCode::kLimit, "Memory is short")) : exercise(id, {"/bin/true"});
  const std::lock_guard guard(mutex_);
  if (alive) {
    ready.next_keep_alive = Clock::now() + options_.keep_alive;
    ready_.push_back(std::move(ready));
    return;
  }
  ++status_.evicted;
  not_before_ = Clock::now() + kRetryAfterFailure;
  static_cast<void>(engine_->remove(id, true));
}

void PoolImpl::work() {
  std::unique_lock guard(mutex_);
  while (!ending_) {
    const auto now = Clock::now();
    if (!ready_.empty() && ready_.front().next_keep_alive <= now) {
      Ready oldest = std::move(ready_.front());
      ready_.pop_front();
      guard.unlock();
      keep_alive(std::move(oldest));
      guard.lock();
      changed_.notify_all();
      continue;
    }
    const bool wanted = ready_.size() < options_.size;
    if (wanted && now >= not_before_) {
      guard.unlock();
      auto made = memory_is_short() ? Result<Ready>(fail(ErrorCode::kLimit, "Memory is short")) : make_one();
      guard.lock();
      if (made) {
        ready_.push_back(std::move(*made));
        ++status_.made;
      } else {
        ++status_.failed;
        status_.last_error = to_string(made.error());
        not_before_ = Clock::now() + kRetryAfterFailure;
      }
      changed_.notify_all();
      continue;
    }
    Deadline wake = wanted ? not_before_ : now + options_.keep_alive;
    if (!ready_.empty()) wake = std::min(wake, ready_.front().next_keep_alive);
    changed_.wait_until(guard, wake);
  }
}

std::optional<Ready> PoolImpl::take_ready() {
  const std::lock_guard guard(mutex_);
  if (ready_.empty()) return std::nullopt;
  Ready ready = std::move(ready_.back());  // the one used last is the warmest
  ready_.pop_back();
  ++status_.claimed;
  changed_.notify_all();
  return ready;
}

Result<Pool::Claim> PoolImpl::claim_ready(Engine& engine, Ready ready, const SandboxOptions& options) {
  const std::string id = ready.sandbox.record.id;
  SandboxRecord record = std::move(ready.sandbox.record);
  const std::string old_name = record.name;
  DRUPE_TRY(static_cast<EngineImpl&>(engine).prepare_claim(record, options));
  ClaimRequest request;
  request.record_json = encode_record(record);
  request.owner_pid = options.detached ? 0 : ::getpid();
  if (request.record_json.size() > kMostClaimBytes)
    return fail(ErrorCode::kLimit, "The command is too long for a pooled sandbox");
  DRUPE_ASSIGN(auto client, engine.connect(id, false));
  DRUPE_TRY(client->call(static_cast<std::uint16_t>(ShimRequest::kClaim), request.encode(),
                         Clock::now() + kClaimLimit));
  // Stale since the shim has written the record; nobody else would remove it before `drupe prune`.
  if (old_name != record.name) static_cast<EngineImpl&>(engine).forget_name(old_name, id);
  record.state = SandboxState::kRunning;
  return Claim{{std::move(record), true}, std::move(client)};
}

Result<Pool::Claim> PoolImpl::claim(Engine& engine, const SandboxOptions& options) {
  const MachineShape wanted = shape_for(options.cpus, options.memory_mib);
  const MachineShape own = shape_for(options_.cpus, options_.memory_mib);
  if (options.image != options_.image || wanted.vcpus != own.vcpus || wanted.memory_mib != own.memory_mib)
    return fail(ErrorCode::kInvalidArgument, "The pool keeps sandboxes of another image or shape");
  DRUPE_TRY(check_options(options, std::thread::hardware_concurrency()));
  // Another disk size, a network or the host's authorities need a start of their own.
  while (options.disk_bytes == options_.disk_bytes && options.network.mode == NetworkMode::kNone &&
         options.networks.empty() && !options.host_ca) {
    auto ready = take_ready();
    if (!ready) break;
    const std::string id = ready->sandbox.record.id;
    auto claimed = claim_ready(engine, std::move(*ready), options);
    if (claimed) return claimed;
    static_cast<void>(engine.remove(id, true));
    // The caller's own mistake stays one with the next sandbox; a dead sandbox does not.
    const ErrorCode code = claimed.error().code;
    if (code == ErrorCode::kAlreadyExists || code == ErrorCode::kInvalidArgument) return claimed;
    if (code == ErrorCode::kLimit) break;
  }
  DRUPE_ASSIGN(SandboxInfo made, engine.create(options));
  DRUPE_TRY(engine.start(made.record.id, false, !options.detached));
  DRUPE_ASSIGN(auto client, engine.connect(made.record.id, false));
  made.alive = true;
  made.record.state = SandboxState::kRunning;
  return Claim{std::move(made), std::move(client)};
}

}  // namespace

Result<std::unique_ptr<Pool>> Pool::create(EngineOptions engine_options, PoolOptions options) {
  if (options.size < 1 || options.size > kMostSize)
    return fail(ErrorCode::kInvalidArgument,
                "A pool keeps 1 to 64 sandboxes, not " + std::to_string(options.size));
  if (options.keep_alive < std::chrono::seconds(1))
    return fail(ErrorCode::kInvalidArgument, "The pool's keep-alive interval is shorter than a second");
  // Both are called from the pool's thread, which is not their owner's.
  engine_options.on_progress = {};
  engine_options.on_note = {};
  DRUPE_ASSIGN(auto engine, Engine::open(std::move(engine_options)));
  auto pool = std::make_unique<PoolImpl>(std::move(engine), std::move(options));
  pool->start();
  return pool;
}

}  // namespace drupe
