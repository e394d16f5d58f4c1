// What a sandbox has of the machine, and how much of it it has used.
#include "api/service/operation.h"
#include "api/service/sandboxes.h"
#include "protocol/net_control.h"
#include "shim/messages.h"

namespace drupe::api {
namespace {

constexpr std::chrono::seconds kGrowLimit{60};
constexpr std::chrono::seconds kAnswerLimit{10};

Status tell_size(Engine& engine, const SandboxRow& row, std::int64_t disk_mib) {
  DRUPE_ASSIGN(const auto client, engine.connect(row.engine_id, false));
  ByteWriter size;
  size.number(static_cast<std::uint64_t>(disk_mib) << 20);
  DRUPE_TRY(client->call(static_cast<std::uint16_t>(ShimRequest::kGrowDisk), size.bytes(),
                         Clock::now() + kGrowLimit));
  return {};
}

}  // namespace

Result<SandboxView> Sandboxes::grow_disk(const std::string& owner, const std::string& id,
                                         std::int64_t disk_mib) {
  DRUPE_ASSIGN(SandboxRow row, own_row(owner, id));
  DRUPE_ASSIGN(const auto engine, engines_.lease());
  DRUPE_ASSIGN(SandboxView view, look(std::move(row), *engine));
  DRUPE_TRY(require(view, State::kRunning, "resizing its disk"));
  if (disk_mib <= view.row.disk_mib)
    return fail(ErrorCode::kInvalidArgument,
                "disk_mib must be more than the " + std::to_string(view.row.disk_mib) + " that it has");
  if (disk_mib > settings_.most_disk_mib)
    return fail(ErrorCode::kInvalidArgument,
                "disk_mib is not allowed to be more than " + std::to_string(settings_.most_disk_mib));
  const std::int64_t more = disk_mib - view.row.disk_mib;
  {
    const std::scoped_lock lock(quota_mutex_);
    std::int64_t& growing = growing_mib_[owner];
    DRUPE_TRY(check_room(owner, {0, 0, 0, more + growing}, *engine));
    growing += more;
  }
  auto grown = tell_size(*engine, view.row, disk_mib);
  if (grown) view.row.disk_mib = disk_mib;
  if (grown) grown = store_.update_sandbox(view.row);
  {
    const std::scoped_lock lock(quota_mutex_);
    if ((growing_mib_[owner] -= more) == 0) growing_mib_.erase(owner);
  }
  DRUPE_TRY(std::move(grown));
  return view;
}

Result<Traffic> Sandboxes::traffic(const std::string& owner, const std::string& id) {
  DRUPE_ASSIGN(SandboxRow row, own_row(owner, id));
  DRUPE_ASSIGN(const auto engine, engines_.lease());
  DRUPE_ASSIGN(const SandboxView view, look(std::move(row), *engine));
  Traffic traffic;
  if (view.row.engine_id.empty() || view.row.phase != Phase::kLive) return traffic;
  DRUPE_ASSIGN(const SandboxInfo info, engine->find(view.row.engine_id));
  traffic.used_bytes = info.record.network.used_bytes;
  if (view.state != State::kRunning) return traffic;
  DRUPE_ASSIGN(const auto client, engine->connect(view.row.engine_id, false));
  DRUPE_ASSIGN(const std::string body, client->call(static_cast<std::uint16_t>(ShimRequest::kNetCounters), {},
                                                    Clock::now() + kAnswerLimit));
  DRUPE_ASSIGN(const auto counters, net::NetCounters::decode(as_bytes(body)));
  traffic.used_bytes += counters.bytes_in + counters.bytes_out;
  traffic.in_bytes = counters.bytes_in;
  return traffic;
}

}  // namespace drupe::api
