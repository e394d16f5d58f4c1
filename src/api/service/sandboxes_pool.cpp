// Creates that are claimed from the warm pool.
#include "api/service/operation.h"
#include "api/service/sandboxes.h"
#include "base/log.h"

namespace drupe::api {

std::optional<Sandboxes::PoolView> Sandboxes::pool() const {
  if (pool_ == nullptr) return std::nullopt;
  return PoolView{pool_image_, pool_shape_, pool_->status()};
}

Result<std::optional<SandboxInfo>> Sandboxes::claim(Engine& engine, const SandboxOptions& options,
                                                    const SandboxRow& row) {
  if (pool_ == nullptr || row.rootfs != pool_image_ || row.shape != pool_shape_) return std::nullopt;
  const PoolStatus status = pool_->status();
  if (status.ready == 0) return std::nullopt;
  const auto begun = Clock::now();
  // Those that wait have no network: it comes once it is known whose they are.
  SandboxOptions plain = options;
  plain.network = {};
  auto made = pool_->claim(engine, plain);
  if (!made) {
    log(LogLevel::kWarning, "No sandbox could be claimed from the pool: " + made.error().message);
    return std::nullopt;
  }
  const std::string id = made->sandbox.record.id;
  made->client.reset();
  metrics_.observe_stage("claim", std::chrono::duration<double, std::milli>(Clock::now() - begun).count());
  if (options.network.mode == NetworkMode::kNone) return std::move(made->sandbox);
  if (auto set = engine.set_network(id, options.network); !set) {
    static_cast<void>(engine.remove(id, true));
    return std::unexpected(std::move(set).error());
  }
  metrics_.observe_stage("network", std::chrono::duration<double, std::milli>(Clock::now() - begun).count());
  return std::move(made->sandbox);
}

}  // namespace drupe::api
