// What a guest asks of its own life.
#pragma once

#include <functional>
#include <string>

#include "shim/guest_link.h"

namespace drupe {

/// The stream that it comes by. On the loop's thread.
class SelfControl final : public GuestStream {
 public:
  enum class Wish : std::uint8_t { kPause, kDelete };

  /// `on_ended`: the guest does not listen any more, for this reason; nothing is wished after it. Both may be
  /// called within a frame's delivery, and may not destroy this.
  SelfControl(GuestLink& link, std::function<void(Wish)> on_wish, std::function<void(std::string)> on_ended)
      : link_(link), on_wish_(std::move(on_wish)), on_ended_(std::move(on_ended)) {}
  ~SelfControl() override;
  SelfControl(const SelfControl&) = delete;
  SelfControl& operator=(const SelfControl&) = delete;

  Status open();
  void on_guest_frame(const Frame& frame) override;

 private:
  void take(ByteView bytes);

  GuestLink& link_;
  std::function<void(Wish)> on_wish_;
  std::function<void(std::string)> on_ended_;
  std::uint32_t id_ = 0;
  bool open_ = false;
  std::string line_;
};

}  // namespace drupe
