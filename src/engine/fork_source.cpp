#include <cstring>

#include <unistd.h>

#include "base/ids.h"
#include "engine/fork_parts.h"
#include "shim/client.h"

namespace drupe {
namespace {

using Stage = SnapshotStageRequest::Stage;

constexpr std::chrono::seconds kSnapshotLimit{120};
constexpr std::chrono::seconds kLastWord{60};

std::uint64_t new_ticket() {
  std::uint64_t ticket = 0;
  std::memcpy(&ticket, random_bytes(sizeof ticket).data(), sizeof ticket);
  return ticket | 1;
}

}  // namespace

EngineImpl::ForkSource::~ForkSource() {
  if (client_ && !answers_->done)
    static_cast<void>(
        engine_.loop_->run_until([this] { return answers_->done.has_value(); }, Clock::now() + kLastWord));
  if (!own_files_) return;
  // The parent goes on without the files of the save; the children have links.
  for (const std::string& name :
       {saved_.delta_file, saved_.extents_file, saved_.device_state_file, saved_.flows_file})
    if (!name.empty()) ::unlinkat(dir_.get(), name.c_str(), 0);
}

Status EngineImpl::ForkSource::begin(const std::string& id) {
  DRUPE_ASSIGN(const SandboxInfo info, engine_.look_at(id));
  if (info.record.state == SandboxState::kPaused) {
    DRUPE_ASSIGN(Held held, engine_.hold(id));
    if (held.record.state == SandboxState::kPaused && held.record.saved) {
      saved_ = *held.record.saved;
      disk_chain_ = held.record.disk_chain;
      parent_ = std::move(held.record);
      dir_ = std::move(held.dir);
      lock_ = std::move(held.lock);
      return {};
    }
  }
  return ask(id);
}

Status EngineImpl::ForkSource::ask(const std::string& id) {
  DRUPE_ASSIGN(auto client, engine_.connect_running(id));
  DRUPE_ASSIGN(dir_, engine_.home_.open_sandbox(id));
  DRUPE_ASSIGN(parent_, read_own_record(dir_.get(), id));
  client_ = std::move(client);
  limit_ = Clock::now() + kSnapshotLimit;
  SnapshotRequest request;
  request.ticket = new_ticket();
  const auto keep = [answers = answers_](Answer Answers::* which) {
    return [answers, which](Result<std::string> answer) { (*answers).*which = std::move(answer); };
  };
  const auto stage = static_cast<std::uint16_t>(ShimRequest::kSnapshotStage);
  client_->request(stage, SnapshotStageRequest{request.ticket, Stage::kSaved}.encode(),
                   keep(&Answers::saved));
  client_->request(stage, SnapshotStageRequest{request.ticket, Stage::kMoved}.encode(),
                   keep(&Answers::moved));
  client_->request(static_cast<std::uint16_t>(ShimRequest::kSnapshot), request.encode(),
                   keep(&Answers::done));
  return {};
}

Status EngineImpl::ForkSource::await(Answer Answers::* answer) {
  const Answer& wanted = (*answers_).*answer;
  DRUPE_ASSIGN(const bool came, engine_.loop_->run_until([&wanted] { return wanted.has_value(); }, limit_));
  if (!came) return fail(ErrorCode::kTimeout, "The sandbox was not saved in time", "Try again.");
  if (!*wanted) return std::unexpected(wanted->error());
  return {};
}

Status EngineImpl::ForkSource::await_saved() {
  if (!runs()) return {};
  DRUPE_TRY(await(&Answers::saved));
  DRUPE_ASSIGN(SnapshotReply reply, SnapshotReply::decode(as_bytes(**answers_->saved)));
  saved_ = std::move(reply.saved);
  disk_chain_ = std::move(reply.disk_chain);
  own_files_ = true;
  DRUPE_ASSIGN(parent_, read_own_record(dir_.get(), parent_.id));
  return {};
}

Status EngineImpl::ForkSource::await_moved() {
  return runs() ? await(&Answers::moved) : Status();
}

Status EngineImpl::ForkSource::finish(Timings& timings) {
  if (!runs()) return {};
  DRUPE_TRY(await(&Answers::done));
  DRUPE_ASSIGN(const SnapshotReply reply, SnapshotReply::decode(as_bytes(**answers_->done)));
  timings.stages.emplace_back("parent stopped", reply.stopped_ms);
  double before = 0;
  for (const auto& [stage, at] : reply.timings) {
    timings.stages.emplace_back("parent " + stage, at - before);
    before = at;
  }
  return {};
}

}  // namespace drupe
