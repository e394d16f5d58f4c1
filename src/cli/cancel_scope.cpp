#include "cli/cancel_scope.h"

namespace drupe::cli {
namespace {

constexpr int kSignals[] = {SIGINT, SIGTERM, SIGHUP};

// A signal handler reaches nothing but what is global.
std::atomic<bool> cancelled = false;
std::atomic<int> came = 0;
static_assert(std::atomic<bool>::is_always_lock_free && std::atomic<int>::is_always_lock_free);

void note_signal(int number) {
  came = number;
  cancelled = true;
}

}  // namespace

CancelScope::CancelScope() {
  struct sigaction action{};
  action.sa_handler = note_signal;
  action.sa_flags = static_cast<int>(SA_RESETHAND) | SA_RESTART;
  for (std::size_t i = 0; i < 3; ++i) ::sigaction(kSignals[i], &action, &before_[i]);
}

CancelScope::~CancelScope() {
  for (std::size_t i = 0; i < 3; ++i) ::sigaction(kSignals[i], &before_[i], nullptr);
}

const std::atomic<bool>* CancelScope::flag() {
  return &cancelled;
}

int CancelScope::status() {
  return cancelled ? 128 + came : 0;
}

}  // namespace drupe::cli
