#include "shim/testing/fake_guest.h"

#include <csignal>

#include <sys/socket.h>
#include <unistd.h>

namespace drupe::testing {
namespace {

std::pair<UniqueFd, UniqueFd> socket_pair() {
  int pair[2] = {-1, -1};
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, pair) != 0) std::abort();
  return {UniqueFd(pair[0]), UniqueFd(pair[1])};
}

}  // namespace

// --- agent
// -------------------------------------------------------------------------------------------------------------

FakeAgent::FakeAgent(EventLoop& loop, UniqueFd control, UniqueFd bulk) : loop_(loop) {
  Port::Callbacks callbacks;
  callbacks.on_frame = [this](const Frame& frame) { return on_control(frame); };
  callbacks.on_marker = [this](std::uint64_t epoch) {
    epochs.push_back(epoch);
    if (!silent) control_->send_marker(epoch);
  };
  control_ = Port::create(loop, std::move(control), {}, callbacks).value();
  callbacks.on_frame = [this](const Frame& frame) { return on_bulk(frame); };
  callbacks.on_marker = [this](std::uint64_t epoch) {
    if (!silent) bulk_->send_marker(epoch);
  };
  bulk_ = Port::create(loop, std::move(bulk), {}, callbacks).value();
  control_->await_marker(0);
  bulk_->await_marker(0);
}

Status FakeAgent::on_control(const Frame& frame) {
  const auto request = decode_request(frame.payload);
  if (!request) return std::unexpected(request.error());
  requests.push_back({request->kind, std::string(as_text(request->body))});
  if (on_request) on_request(static_cast<RequestKind>(request->kind));
  if (!silent) answer(frame.id, static_cast<RequestKind>(request->kind), request->body);
  return {};
}

void FakeAgent::answer(std::uint32_t id, RequestKind kind, ByteView body) {
  std::string reply;
  if (kind == RequestKind::kPing) reply = std::string(as_text(body));
  if (kind == RequestKind::kHello) reply = HelloReply{kProtocolVersion, "fake", "6.1", "boot"}.encode();
  if (kind == RequestKind::kFreeze && freeze_fails) {
    // Undone after its barrier was on the way already.
    bulk_->send(FrameType::kBarrier, Channel::kStdin, FreezeRequest::decode(body)->barrier, {});
    control_->send(FrameType::kReply, Channel::kStdin, id,
                   encode_error_reply(Error{ErrorCode::kTimeout, "Work did not stand still", {}, 0}));
    return;
  }
  if (kind == RequestKind::kFreeze)
    bulk_->send(FrameType::kBarrier, Channel::kStdin, FreezeRequest::decode(body)->barrier, {});
  control_->send(FrameType::kReply, Channel::kStdin, id, encode_reply(reply));
  if (kind == RequestKind::kFreeze) {
    control_->await_marker(0);
    bulk_->await_marker(0);
  }
  if (kind == RequestKind::kShutdown && on_shutdown) loop_.defer(on_shutdown);
}

Status FakeAgent::on_bulk(const Frame& frame) {
  switch (frame.type) {
    case FrameType::kOpen:
      opening_.emplace(frame.id, *OpenAssembler::begin(frame.payload));
      break;
    case FrameType::kData:
      if (opening_.contains(frame.id))
        (void)opening_.at(frame.id).add(frame.payload);
      else
        received[frame.id] += as_text(frame.payload);
      break;
    case FrameType::kReset:
      resets[frame.id] = as_text(frame.payload);
      return {};
    case FrameType::kCredit:
      granted[frame.id] += *decode_credit(frame.payload);
      return {};
    case FrameType::kBarrier:
      return {};
    default:
      others.push_back(Frame{frame.type, frame.channel, frame.id, {}});
      return {};
  }
  const auto found = opening_.find(frame.id);
  if (found == opening_.end() || !found->second.complete()) return {};
  opened[frame.id] = *found->second.decode();
  opening_.erase(found);
  if (on_open)
    on_open(frame.id);
  else
    bulk_->send(FrameType::kOpened, Channel::kStdin, frame.id, OpenedReply{42}.encode());
  return {};
}

void FakeAgent::output(std::uint32_t stream, std::string_view bytes, Channel channel) {
  while (!bytes.empty()) {
    const std::size_t part = std::min(bytes.size(), kMaxPayload);
    bulk_->send(FrameType::kData, channel, stream, bytes.substr(0, part));
    bytes.remove_prefix(part);
  }
}
void FakeAgent::credit(std::uint32_t stream, std::uint32_t bytes) {
  bulk_->send(FrameType::kCredit, Channel::kStdin, stream, encode_credit(bytes));
}
void FakeAgent::exit(std::uint32_t stream, int code) {
  ExitFacts facts;
  facts.exit_code = code;
  bulk_->send(FrameType::kExit, Channel::kStdin, stream, facts.encode());
}
void FakeAgent::event(EventKind kind, std::string_view text) {
  control_->send(FrameType::kEvent, Channel::kStdin, 0,
                 encode_request(static_cast<std::uint16_t>(kind), text));
}
std::size_t FakeAgent::count(RequestKind kind) const {
  std::size_t n = 0;
  for (const auto& request : requests) n += request.kind == static_cast<std::uint16_t>(kind) ? 1 : 0;
  return n;
}

// --- machine
// -----------------------------------------------------------------------------------------------------------

FakeMachine::FakeMachine(EventLoop& loop, FakeWorld& world, bool prepared) : loop_(loop), world_(world) {
  auto [control, guest_control] = socket_pair();
  auto [bulk, guest_bulk] = socket_pair();
  control_ = std::move(control);
  bulk_ = std::move(bulk);
  agent_ = std::make_unique<FakeAgent>(loop, std::move(guest_control), std::move(guest_bulk));
  agent_->silent = prepared ? world.silent_restore : world.launches <= world.silent_launches;
  if (!prepared) enter_world();
}

void FakeMachine::enter_world() {
  world_.running.push_back(this);
  world_.machine = this;
  world_.agent = agent_.get();
}

FakeMachine::~FakeMachine() {
  *alive_ = false;
  std::erase(world_.running, this);
  if (world_.machine != this) return;
  world_.machine = world_.running.empty() ? nullptr : world_.running.back();
  world_.agent = world_.machine == nullptr ? nullptr : world_.machine->agent_.get();
}

int FakeMachine::pid() const {
  return ::getpid();
}

Status FakeMachine::call(const std::string& name) {
  world_.calls.push_back(name);
  if (world_.fail_call == name) return fail(ErrorCode::kHost, "The machine refused to " + name);
  return {};
}

Result<SavedMemory> FakeMachine::save(UniqueFd device_state, int memory_file, SaveForm form, Deadline) {
  DRUPE_TRY(call("save"));
  if (::write(device_state.get(), "state", 5) != 5 || ::write(memory_file, "memory", 6) != 6)
    return fail(ErrorCode::kHost, "writing failed");
  SavedMemory saved;
  if (form == SaveForm::kDelta) saved.extents = {{4096, 0, 4096}};
  return saved;
}

Status FakeMachine::restore(SavedMachine, Deadline) {
  DRUPE_TRY(call("restore"));
  enter_world();
  if (world_.on_restore) world_.on_restore();
  return {};
}

void FakeMachine::flatten_disk(std::function<void(Status)> done) {
  world_.calls.emplace_back("flatten");
  world_.flattened = std::move(done);
}

Status FakeMachine::drop_flattened(Deadline) {
  DRUPE_TRY(call("drop"));
  if (world_.on_drop) world_.on_drop();
  // As the driver does, which waits for answers.
  const auto alive = alive_;
  DRUPE_ASSIGN([[maybe_unused]] const bool done,
               loop_.run_until([&alive] { return !*alive; }, Clock::now() + std::chrono::milliseconds(20)));
  if (!*alive) std::abort();  // Destroyed from inside its own call.
  return {};
}

void FakeMachine::kill() {
  if (ended_) return;
  world_.calls.emplace_back("kill");
  end(SIGKILL, false, "killed by signal 9 (Killed)");
}

void FakeMachine::end(int wait_status, bool guest_reset, const std::string& reason) {
  if (std::exchange(ended_, true)) return;
  // What the agent has queued was written before: the process ends with nothing in its own buffers.
  loop_.defer([this, alive = alive_, wait_status, guest_reset, reason] {
    if (!*alive) return;
    if (world_.agent == agent_.get()) world_.agent = nullptr;
    agent_.reset();
    if (on_end_) on_end_(MachineEnd{wait_status, guest_reset, reason});
  });
}

Result<std::unique_ptr<Machine>> FakeHypervisor::launch(EventLoop& loop, LaunchSpec spec, Deadline) {
  ++world_.launches;
  if (world_.fail_call == "launch") return fail(ErrorCode::kHost, "The machine refused to launch");
  world_.disk_nodes = spec.disk.size();
  world_.restored = spec.device_state.has_value();
  return std::make_unique<FakeMachine>(loop, world_, /*prepared=*/false);
}

Result<std::unique_ptr<Machine>> FakeHypervisor::prepare(EventLoop& loop, LaunchSpec spec, Deadline) {
  world_.calls.emplace_back("prepare");
  if (world_.fail_call == "prepare") return fail(ErrorCode::kHost, "The machine refused to prepare");
  world_.disk_nodes = spec.disk.size();
  return std::make_unique<FakeMachine>(loop, world_, /*prepared=*/true);
}

}  // namespace drupe::testing
