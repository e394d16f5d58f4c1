// What the sandbox's clients may ask.
#include "base/log.h"
#include "shim/pass_through.h"
#include "shim/sandbox.h"

namespace drupe {
namespace {

constexpr std::chrono::seconds kClaimDeadline{20};
constexpr std::chrono::seconds kGrowDeadline{60};
constexpr std::chrono::seconds kFlattenWait{600};

bool client_may(RequestKind kind) {
  switch (kind) {
    case RequestKind::kPing:
    case RequestKind::kSync:
    case RequestKind::kStats:
    case RequestKind::kProcesses:
    case RequestKind::kSignalExec:
    case RequestKind::kSetHost:
      return true;
    default:
      return false;
  }
}

}  // namespace

Result<std::unique_ptr<ClientSideStream>> Sandbox::open_stream(const ClientStreamRef& client,
                                                               OpenRequest request) {
  if (ending_ || over_ || !link_) return fail(ErrorCode::kInvalidState, "The sandbox is ending");
  const bool is_main = request.exec.exec_id == "main";
  if (request.kind == OpenKind::kAttach && is_main) {
    if (!main_)
      return fail(ErrorCode::kInvalidState, "The sandbox has no main command", "Run one with `drupe exec`.");
    return main_->attach(client, request.exec.stdin_open);
  }
  if (request.kind == OpenKind::kExec && is_main)
    return fail(ErrorCode::kAlreadyExists, "The id \"main\" belongs to the sandbox's main command");
  return PassThrough::open(*link_, client, request);
}

void Sandbox::on_request(std::uint16_t kind, ByteView body, ReplyFn reply) {
  touch();
  if (kind >= static_cast<std::uint16_t>(ShimRequest::kInfo))
    return on_shim_request(static_cast<ShimRequest>(kind), body, reply);
  if (!client_may(static_cast<RequestKind>(kind)))
    return reply(fail(ErrorCode::kPermission, "This request is the shim's alone"));
  link_->request(kind, as_text(body), std::move(reply));
}

void Sandbox::on_shim_request(ShimRequest kind, ByteView body, const ReplyFn& reply) {
  // The body is the connection's buffer: what runs later takes a copy.
  const auto later = [&](Result<std::string> (Sandbox::*run)(ByteView)) {
    run_operation(reply,
                  [this, run, copy = std::string(as_text(body))] { return (this->*run)(as_bytes(copy)); });
  };
  switch (kind) {
    case ShimRequest::kInfo:
      return reply(info());
    case ShimRequest::kPause:
      return run_operation(reply, [this] { return pause(); });
    case ShimRequest::kSnapshot:
      return on_snapshot(body, reply);
    case ShimRequest::kSnapshotStage:
      return on_snapshot_stage(body, reply);
    case ShimRequest::kStop:
      return on_stop(body, reply);
    case ShimRequest::kWait:
      waiters_.push_back(reply);
      return;
    case ShimRequest::kUpdate:
      return later(&Sandbox::update);
    case ShimRequest::kClaim:
      return later(&Sandbox::claim);
    case ShimRequest::kGrowDisk:
      return later(&Sandbox::grow_disk);
    case ShimRequest::kNetSet:
      return later(&Sandbox::set_policy);
    case ShimRequest::kNetworks:
      return later(&Sandbox::set_networks);
    case ShimRequest::kNetLog:
      return on_net_request(net::NetRequest::kReadLog, body, reply);
    case ShimRequest::kNetCounters:
      return on_net_request(net::NetRequest::kCounters, body, reply);
    case ShimRequest::kStartMain:
      if (!main_) return reply(fail(ErrorCode::kInvalidState, "The sandbox has no main command"));
      if (!main_->waiting())
        return reply(fail(ErrorCode::kInvalidState, "The main command has been started already"));
      start_main();
      return reply(std::string());
  }
  reply(fail(ErrorCode::kUnsupported, "The sandbox's shim does not know this request",
             "It was started by another version of Drupe; stop and start the sandbox."));
}

void Sandbox::on_stop(ByteView body, const ReplyFn& reply) {
  const auto request = StopRequest::decode(body);
  if (!request) return reply(std::unexpected(request.error()));
  stoppers_.push_back(reply);
  if (request->discard) return request_end({EndCause::kStopped, "It was removed", EndHow::kKill, 0, 0});
  const std::int32_t signal = request->signal != 0 ? request->signal : signal_number(record_.stop_signal);
  request_end({EndCause::kStopped, "It was stopped", EndHow::kGraceful, signal, request->grace_ms});
}

Result<std::string> Sandbox::info() const {
  ShimInfo info;
  info.record_json = brief_record_json(record_);
  const UsageNumbers usage = usage_.read();
  info.hypervisor_private_bytes = usage.hypervisor_private_bytes;
  info.guest_private_bytes = usage.guest_private_bytes;
  info.shim_private_bytes = usage.shim_private_bytes;
  info.cpu_ns = usage.cpu_ns;
  info.log_bytes_lost = main_ ? main_->log_bytes_lost() : 0;
  info.clients = static_cast<std::uint32_t>(hub_.clients());
  info.streams = static_cast<std::uint32_t>(hub_.streams());
  if (machine_) {
    constexpr std::size_t kTail = 16 * 1024;
    info.hypervisor_pid = machine_->pid();
    info.network_pid = network_ ? network_->pid() : 0;
    info.console_tail = console_tail();
    if (info.console_tail.size() > kTail) info.console_tail.erase(0, info.console_tail.size() - kTail);
  }
  return info.encode();
}

Result<std::string> Sandbox::update(ByteView body) {
  DRUPE_ASSIGN(UpdateRequest request, UpdateRequest::decode(body));
  if (request.valid_until_ns != 0 && monotonic_ns(Clock::now()) > request.valid_until_ns)
    return fail(ErrorCode::kTimeout, "The change came too late");
  SandboxRecord updated = record_;
  if (request.name) updated.name = std::move(*request.name);
  if (request.labels) updated.labels = std::move(*request.labels);
  if (request.idle_timeout_ms) updated.idle_timeout_ms = *request.idle_timeout_ms;
  if (request.max_lifetime_ms) updated.max_lifetime_ms = *request.max_lifetime_ms;
  DRUPE_TRY(write_record(host_.dir, updated));
  record_ = std::move(updated);
  arm_lifetime();
  touch();
  return std::string();
}

// A pooled sandbox gets its owner. What belongs to the machine stays as it is; who it is comes from the
// request.
Result<std::string> Sandbox::claim(ByteView body) {
  DRUPE_ASSIGN(const ClaimRequest request, ClaimRequest::decode(body));
  DRUPE_ASSIGN(SandboxRecord claimed, decode_record(request.record_json));
  if (main_) return fail(ErrorCode::kInvalidState, "The sandbox has an owner already");
  if (claimed.id != record_.id) return fail(ErrorCode::kInvalidArgument, "The claim names another sandbox");
  claimed.shape = record_.shape;
  claimed.disk_bytes = record_.disk_bytes;
  claimed.disk_chain = record_.disk_chain;
  claimed.base_key = record_.base_key;
  claimed.base_ram_file = record_.base_ram_file;
  claimed.state_key = record_.state_key;
  claimed.tsc_khz = record_.tsc_khz;
  claimed.saved = record_.saved;
  claimed.next_file = record_.next_file;
  claimed.state = record_.state;
  claimed.isolation = record_.isolation;
  claimed.confinement = record_.confinement;
  claimed.confinement_missing = record_.confinement_missing;
  claimed.started_ns = now_realtime_ns();
  // A pooled sandbox was restored with an identity that nobody else has: only a wish for another one costs
  // the guest more than taking note of environment, user and directory.
  const bool renamed = claimed.hostname != record_.hostname || claimed.machine_id != record_.machine_id;
  DRUPE_TRY(send_identity(*link_, claimed, renamed, Clock::now() + kClaimDeadline));
  DRUPE_TRY(write_record(host_.dir, claimed));
  record_ = std::move(claimed);
  if (request.owner_pid > 0) watch_owner(request.owner_pid);
  DRUPE_TRY(prepare_main());
  arm_lifetime();
  touch();
  listen_to_guest();
  return std::string();
}

Result<std::string> Sandbox::grow_disk(ByteView body) {
  ByteReader reader(body);
  const auto bytes = reader.number<std::uint64_t>();
  if (!reader.done() || bytes % (1024 * 1024) != 0)
    return fail(ErrorCode::kInvalidArgument, "The new disk size is not a whole number of MiB");
  if (bytes < record_.disk_bytes) return fail(ErrorCode::kInvalidArgument, "A disk can grow but not shrink");
  DRUPE_TRY(wait_for_flattening(Clock::now() + kFlattenWait));
  const Deadline deadline = Clock::now() + kGrowDeadline;
  DRUPE_TRY(machine_->grow_disk(bytes, deadline));
  record_.disk_bytes = bytes;
  if (removes_itself_now()) return fail(ErrorCode::kInvalidState, "The sandbox is ending");
  DRUPE_TRY(write_record(host_.dir, record_));
  DRUPE_TRY(link_->call(RequestKind::kGrowRoot, ByteWriter().number(bytes).bytes(), deadline));
  return std::string();
}

// --- operations: one after the other, since each may wait
// ---------------------------------------------------------------

void Sandbox::run_operation(ReplyFn reply, std::function<Result<std::string>()> run) {
  if (ending_ || over_ || end_plan_) return reply(fail(ErrorCode::kInvalidState, "The sandbox is ending"));
  operations_.push_back({std::move(reply), std::move(run)});
  loop_.defer([this, alive = alive_] {
    if (*alive) next_operation();
  });
}

void Sandbox::refuse_operations() {
  for (auto& refused : std::exchange(operations_, {}))
    refused.reply(fail(ErrorCode::kInvalidState, "The sandbox is ending"));
}

void Sandbox::next_operation() {
  if (operation_running_ || ending_ || over_ || operations_.empty()) return;
  if (end_plan_) return refuse_operations();  // The end is on its way.
  Operation operation = std::move(operations_.front());
  operations_.pop_front();
  operation_running_ = true;
  auto result = operation.run();
  operation_running_ = false;
  if (!result) log(LogLevel::kInfo, "An operation failed: " + result.error().message);
  operation.reply(std::move(result));
  if (over_ || ending_) return;
  if (end_plan_) {
    refuse_operations();
    return finish();
  }
  loop_.defer([this, alive = alive_] {
    if (*alive) next_operation();
  });
}

}  // namespace drupe
