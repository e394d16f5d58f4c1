// Snapshot for a fork. README.md says why the order is safe.
#include <algorithm>

#include <fcntl.h>
#include <unistd.h>

#include "base/log.h"
#include "shim/replacement.h"
#include "shim/sandbox.h"

namespace drupe {
namespace {

using Stage = SnapshotStageRequest::Stage;

// For a machine to load what was saved and to answer; the guest's work stands still meanwhile.
constexpr std::chrono::seconds kTakeOver{10};
constexpr std::chrono::seconds kOldEnds{60};
constexpr std::size_t kMostStageWaiters = 64;

}  // namespace

void Sandbox::on_snapshot(ByteView body, const ReplyFn& reply) {
  const auto request = SnapshotRequest::decode(body);
  if (!request) return reply(std::unexpected(request.error()));
  run_operation(
      [this, reply, ticket = request->ticket](Result<std::string> done) {
        // Of a snapshot that succeeded nobody waits any more.
        const Result<std::string> failed =
            done ? Result<std::string>(fail(ErrorCode::kInvalidState, "The snapshot is over")) : done;
        for (const Stage stage : {Stage::kSaved, Stage::kMoved}) tell_stage(ticket, stage, failed);
        reply(std::move(done));
      },
      [this, request = *request] { return snapshot(request); });
}

void Sandbox::on_snapshot_stage(ByteView body, const ReplyFn& reply) {
  const auto request = SnapshotStageRequest::decode(body);
  if (!request) return reply(std::unexpected(request.error()));
  if (ending_ || over_ || end_plan_) return reply(fail(ErrorCode::kInvalidState, "The sandbox is ending"));
  if (stage_waiters_.size() >= kMostStageWaiters)
    return reply(fail(ErrorCode::kLimit, "Too many clients wait for snapshots", "Try again in a moment."));
  stage_waiters_.push_back({*request, reply});
}

void Sandbox::tell_stage(std::uint64_t ticket, Stage stage, const Result<std::string>& answer) {
  std::vector<ReplyFn> concerned;
  std::erase_if(stage_waiters_, [&](const StageWaiter& waiter) {
    if (waiter.request.ticket != ticket || waiter.request.stage != stage) return false;
    concerned.push_back(waiter.reply);
    return true;
  });
  for (const ReplyFn& reply : concerned) reply(answer);
}

Result<std::string> Sandbox::snapshot(const SnapshotRequest& request) {
  StageMarks marks;
  const Deadline deadline = Clock::now() + std::chrono::milliseconds(request.deadline_ms);
  DRUPE_TRY(wait_for_flattening(deadline));
  Saver saver(loop_, *machine_, *link_, host_.dir, next_names());
  Replacement next(loop_, hypervisor_, host_.dir);
  saver.begin_flush();
  UniqueFd net_end(::fcntl(net_end_.get(), F_DUPFD_CLOEXEC, 0));
  DRUPE_TRY(next.prepare(record_, "disk-" + std::to_string(record_.next_file++) + ".qcow2",
                         std::move(net_end), deadline));
  marks.mark("prepared");
  DRUPE_TRY(saver.end_flush(deadline));
  marks.mark("flushed");
  hub_.pause_reading(true);
  SnapshotReply reply;
  Status done;
  if (auto saved = saver.save(SaveForm::kDelta, deadline, marks)) {
    pass_failpoint("shim.snapshot.saved");
    reply.saved = std::move(*saved);
    note_network(reply.saved);
    done = go_on_in(next, reply, saver, request.ticket, marks, deadline);
  } else {
    done = std::unexpected(std::move(saved).error());
  }
  hub_.pause_reading(false);
  reply.stopped_ms = saver.stopped_ms();
  if (saver.unusable())
    request_end({EndCause::kVmLost, "A save failed and the guest did not go on", EndHow::kKill, 0, 0});
  if (!done) {
    ::unlinkat(host_.dir, reply.saved.flows_file.c_str(), 0);
    return std::unexpected(std::move(done).error());
  }
  flatten_if_long();
  reply.timings = marks.timings();
  return reply.encode();
}

// The record names the new node before a machine writes to it, and an empty node over the old one reads as
// the old one: so the record matches the disk at every moment, whichever machine goes on. The saved one is
// ended only when the agent has answered in the new one; until then it can go on as if nothing had been. But
// its process is held from before the first child may look at what it can write.
Status Sandbox::go_on_in(Replacement& next, SnapshotReply& reply, Saver& saver, std::uint64_t ticket,
                         StageMarks& marks, Deadline limit) {
  const bool ending = end_plan_.has_value();
  reply.disk_chain = record_.disk_chain;
  const Deadline deadline = std::min(limit, Clock::now() + kTakeOver);
  Status done;
  if (ending) {
    done = fail(ErrorCode::kInvalidState, "The sandbox is ending");
  } else {
    record_.disk_chain.push_back(next.node());
    done = write_record(host_.dir, record_);
    pass_failpoint("shim.snapshot.recorded");
  }
  if (done) done = machine_->hold(deadline);
  marks.mark("saved");
  reply.timings = marks.timings();
  if (done) tell_stage(ticket, Stage::kSaved, reply.encode());
  if (done) done = next.restore(reply.saved, *link_, deadline, marks);
  const auto repair = [this](Deadline until) {
    return send_identity(*link_, record_, /*new_identity=*/false, until);
  };
  if (done) {
    const auto old = replace_machine(next.take());
    saver.leave_machine();
    pass_failpoint("shim.snapshot.replaced");
    tell_stage(ticket, Stage::kMoved, std::string());
    marks.mark("moved");
    done = saver.go_on(/*keep_files=*/true, repair);
    marks.mark("running");
    // Not before the guest's work goes on, with which its end would compete for a processor.
    old->machine->kill();
    (void)loop_.run_until([&old] { return old->ended; }, Clock::now() + kOldEnds);
    marks.mark("old ended");
    return done;
  }
  // Its kernel may have written to its node already, which the saved machine knows nothing of.
  next.kill();
  Status reverted;
  if (!ending) {
    record_.disk_chain.pop_back();
    if (!removes_itself_now()) reverted = write_record(host_.dir, record_);
  }
  if (!reverted) {
    record_.disk_chain.push_back(next.node());
    log(LogLevel::kError, "The record cannot be put back: " + reverted.error().message);
    // An empty node is harmless as long as it is there.
    reverted = next.keep_empty_node();
  }
  if (reverted) reverted = saver.go_on(/*keep_files=*/false, repair);
  if (!reverted)
    request_end({EndCause::kVmLost, "The guest did not go on after a failed fork", EndHow::kKill, 0, 0});
  return done;
}

}  // namespace drupe
