// What the guest asks of its own life, where its record says that it may.
#include <utility>

#include "base/log.h"
#include "shim/sandbox.h"

namespace drupe {
namespace {

constexpr std::chrono::seconds kAgain{5}, kFlattenPatience{60};
constexpr int kPauseTries = 5;

}  // namespace

void Sandbox::listen_to_guest() {
  self_.reset();
  if (!record_.self_control || ending_ || over_ || !link_ || link_->broken()) return;
  const auto on_wish = [this](SelfControl::Wish wish) {
    loop_.defer([this, wish, alive = alive_] {
      if (*alive) on_wish_of_guest(wish);
    });
  };
  const auto on_ended = [this](const std::string& why) {
    // Once: a server of the user's own may have the port for as long as it likes.
    if (!std::exchange(told_of_self_, true))
      log(LogLevel::kInfo, "The guest cannot ask for its own pause: " + why);
    loop_.after(kAgain, [this, alive = alive_] {
      if (*alive) listen_to_guest();
    });
  };
  self_ = std::make_unique<SelfControl>(*link_, on_wish, on_ended);
  if (auto opened = self_->open(); !opened) {
    self_.reset();
    on_ended(opened.error().message);
  }
}

void Sandbox::on_wish_of_guest(SelfControl::Wish wish) {
  if (ending_ || over_) return;
  if (wish == SelfControl::Wish::kDelete) {
    // From here on whoever finds it without a holder removes it.
    record_.auto_remove = true;
    write_record_or_log();
    return request_end({EndCause::kStopped, "It asked to be deleted", EndHow::kKill, 0, 0});
  }
  pause_for_guest(kPauseTries);
}

void Sandbox::pause_for_guest(int tries) {
  // The guest was told that it will be: a machine that is too busy to freeze in time is asked again.
  const auto done = [this, tries](const Result<std::string>& paused) {
    if (paused || ending_ || over_) return;
    log(LogLevel::kWarning, "Pausing the sandbox as it asked failed: " + paused.error().message);
    if (tries > 1)
      loop_.after(kAgain, [this, tries, alive = alive_] {
        if (*alive) pause_for_guest(tries - 1);
      });
  };
  run_operation(done, [this]() -> Result<std::string> {
    DRUPE_TRY(wait_for_flattening(Clock::now() + kFlattenPatience));
    return pause();
  });
}

}  // namespace drupe
