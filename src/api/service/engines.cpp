#include "api/service/engines.h"

namespace drupe::api {

Result<Engines::Lease> Engines::lease() {
  {
    const std::scoped_lock lock(mutex_);
    if (!waiting_.empty()) {
      Lease lease(*this, std::move(waiting_.front()));
      waiting_.pop_front();
      return lease;
    }
  }
  DRUPE_ASSIGN(auto engine, Engine::open(options_));
  return Lease(*this, std::move(engine));
}

void Engines::give_back(std::unique_ptr<Engine> engine) {
  const std::scoped_lock lock(mutex_);
  waiting_.push_back(std::move(engine));
}

}  // namespace drupe::api
