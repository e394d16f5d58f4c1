// SSH keys of sandboxes, and of their guests.
#include "api/service/authorized_keys.h"
#include "api/service/operation.h"
#include "api/service/request_checks.h"
#include "api/service/sandboxes.h"
#include "base/log.h"

namespace drupe::api {

void Sandboxes::give_keys(Engine& engine, const SandboxRow& row,
                          const std::vector<std::string>& in_place_of) {
  if (row.ssh_pubkeys.empty() && in_place_of.empty()) return;
  auto client = engine.connect(row.engine_id, false);
  const Status given = client ? put_authorized_keys(engine.loop(), **client, in_place_of, row.ssh_pubkeys)
                              : Status(std::unexpected(client.error()));
  if (!given)
    log(LogLevel::kWarning, row.id + ": its SSH keys are not in its guest: " + given.error().message);
}

Result<SandboxView> Sandboxes::add_ssh_pubkeys(const std::string& owner, const std::string& id,
                                               const std::vector<std::string>& keys) {
  DRUPE_TRY(check_keys(keys));
  DRUPE_ASSIGN(SandboxRow row, own_row(owner, id));
  DRUPE_ASSIGN(const auto engine, engines_.lease());
  DRUPE_ASSIGN(SandboxView view, look(std::move(row), *engine));
  if (view.state != State::kRunning && view.state != State::kPaused)
    return fail(ErrorCode::kInvalidState, "sandbox is " + std::string(to_string(view.state)));
  add_keys(view.row.ssh_pubkeys, keys);
  DRUPE_TRY(check_keys(view.row.ssh_pubkeys));
  DRUPE_TRY(store_.update_sandbox(view.row));
  // A guest that sleeps gets them when it is resumed.
  if (view.state == State::kRunning) give_keys(*engine, view.row, {});
  return view;
}

}  // namespace drupe::api
