// How much a user's sandboxes may take, and for how long they may be there.
#include <algorithm>

#include "api/service/ids.h"
#include "api/service/operation.h"
#include "api/service/sandboxes.h"
#include "base/log.h"

namespace drupe::api {
namespace {

constexpr std::chrono::milliseconds kLeastLook{1000}, kLongestLook{60'000};

}  // namespace

Status Sandboxes::check_room(const std::string& owner, const Usage& more, Engine& engine) {
  DRUPE_ASSIGN(const Quota own, quotas_.quota_of(owner));
  const Usage bounds = bounds_of(own, settings_.quota);
  if (!is_bounded(bounds)) return {};
  DRUPE_ASSIGN(auto rows, store_.list_sandboxes(owner));
  Usage used;
  for (SandboxRow& row : rows) {
    if (row.phase != Phase::kCreating && row.phase != Phase::kLive) continue;
    auto view = look(std::move(row), engine);
    if (!view && view.error().code == ErrorCode::kNotFound) continue;
    if (!view) return std::unexpected(std::move(view).error());
    ++used.sandboxes;
    used.disk_mib += view->row.disk_mib;
    if (view->state == State::kPaused) continue;
    used.vcpu += view->row.vcpu;
    used.mem_mib += view->row.mem_mib;
  }
  return check_quota(bounds, used, more);
}

Status Sandboxes::add_row(SandboxRow& row, bool made_up, Engine& engine) {
  constexpr int kNameTries = 8;
  // Until the row is there, nobody else may count.
  const std::scoped_lock lock(quota_mutex_);
  DRUPE_TRY(check_room(row.owner, {1, row.vcpu, row.mem_mib, row.disk_mib}, engine));
  for (int i = 0; i < kNameTries; ++i) {
    if (made_up) row.name = made_up_name() + (i < kNameTries / 2 ? "" : "-" + row.id.substr(25));
    auto added = store_.add_sandbox(row);
    if (added || added.error().code != ErrorCode::kAlreadyExists) return added;
    if (!made_up) break;
  }
  return fail(ErrorCode::kAlreadyExists, "a sandbox with the name \"" + row.name + "\" already exists");
}

std::optional<std::int64_t> Sandboxes::due_ns(const SandboxView& view) const {
  std::optional<std::int64_t> due;
  const auto add = [&](std::int64_t from_ns, std::chrono::seconds limit) {
    if (limit.count() == 0) return;
    const std::int64_t end = from_ns + std::chrono::nanoseconds(limit).count();
    due = std::min(due.value_or(end), end);
  };
  add(view.row.created_ns, settings_.max_lifetime);
  if (view.state == State::kPaused && view.paused_ns) add(*view.paused_ns, settings_.paused_ttl);
  return due;
}

Result<std::chrono::milliseconds> Sandboxes::end_overdue() {
  if (settings_.max_lifetime.count() == 0 && settings_.paused_ttl.count() == 0) return kLongestLook;
  DRUPE_ASSIGN(auto rows, store_.list_sandboxes(""));
  std::int64_t next = now_ns() + std::chrono::nanoseconds(kLongestLook).count();
  // What is made meanwhile is due after the shorter of the two at the earliest.
  for (const auto limit : {settings_.max_lifetime, settings_.paused_ttl})
    if (limit.count() != 0) next = std::min(next, now_ns() + std::chrono::nanoseconds(limit).count());
  std::optional<Error> first;
  for (SandboxRow& row : rows) {
    if (row.phase != Phase::kLive) continue;
    const std::string owner = row.owner;
    const std::string id = row.id;
    const auto is_due = [this](const SandboxView& view) {
      const auto due = due_ns(view);
      return due && *due <= now_ns();
    };
    auto view = look(std::move(row));
    if (!view) continue;
    if (is_due(*view)) {
      auto ended = end_if(owner, id, is_due);
      if (!ended) {
        if (ended.error().code != ErrorCode::kInvalidState && !first) first = std::move(ended).error().in(id);
      } else if (ended->state == State::kDestroyed) {
        log(LogLevel::kInfo, id + ": its time is over, and it was destroyed");
      }
    } else if (const auto due = due_ns(*view)) {
      next = std::min(next, *due);
    }
  }
  if (first) return std::unexpected(*std::move(first));
  const auto wait = std::chrono::milliseconds((next - now_ns()) / 1'000'000 + 1);
  return std::clamp(wait, kLeastLook, kLongestLook);
}

}  // namespace drupe::api
