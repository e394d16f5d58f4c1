// The claim of one operation on one sandbox.
#pragma once

#include <string>
#include <utility>

#include "api/service/sandboxes.h"

namespace drupe::api {

class Sandboxes::Operation {
 public:
  Operation(Sandboxes& owner, std::string id) : owner_(&owner), id_(std::move(id)) {}
  Operation(Operation&& other) noexcept
      : owner_(std::exchange(other.owner_, nullptr)), id_(std::move(other.id_)) {}
  Operation& operator=(Operation&&) = delete;
  ~Operation() { end(); }

  void end() {
    if (owner_ == nullptr) return;
    const std::scoped_lock lock(owner_->mutex_);
    owner_->operations_.erase(id_);
    owner_->idle_.notify_all();
    owner_ = nullptr;
  }

 private:
  Sandboxes* owner_;
  std::string id_;
};

}  // namespace drupe::api
