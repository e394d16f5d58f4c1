#include <algorithm>
#include <charconv>
#include <thread>

#include <fcntl.h>

#include "engine/admission.h"
#include "engine/file_lock.h"

namespace drupe {
namespace {

constexpr std::chrono::milliseconds kPollSlots{2};
constexpr std::chrono::seconds kCounterWait{10};

std::string slot_path(std::uint32_t slot) {
  return "locks/slot-" + std::to_string(slot);
}
std::string ticket_path(std::uint64_t ticket) {
  return "locks/ticket-" + std::to_string(ticket);
}

Result<UniqueFd> free_slot(const Home& home) {
  for (std::uint32_t slot = 0; slot < StartSlot::count(); ++slot) {
    DRUPE_ASSIGN(UniqueFd fd, try_lock(home.dir(), slot_path(slot)));
    if (fd.valid()) return fd;
  }
  return UniqueFd();
}

/// A place in the queue: a locked file of its own. Whoever is behind waits for this lock alone, so the order
/// is that of the tickets and a dead process gives its place up.
class Ticket {
 public:
  static Result<Ticket> draw(const Home& home) {
    DRUPE_ASSIGN(const UniqueFd counter,
                 lock_file(home.dir(), "locks/queue", Clock::now() + kCounterWait, "the queue of starts"));
    Ticket ticket(home);
    DRUPE_ASSIGN(const std::string text, read_all(counter.get(), 64));
    std::uint64_t last = 0;
    std::from_chars(text.data(), text.data() + text.size(), last);
    ticket.number_ = last + 1;
    DRUPE_ASSIGN(ticket.lock_, try_lock(home.dir(), ticket_path(ticket.number_)));
    DRUPE_TRY(pwrite_all(counter.get(), std::to_string(ticket.number_) + "\n", 0));
    return ticket;
  }
  Ticket(Ticket&&) = default;
  Ticket& operator=(Ticket&&) = delete;
  ~Ticket() {
    if (lock_.valid()) ::unlinkat(home_->dir(), ticket_path(number_).c_str(), 0);
  }
  [[nodiscard]] Result<bool> first() const {
    if (number_ <= 1) return true;
    DRUPE_ASSIGN(const bool ahead, is_locked(home_->dir(), ticket_path(number_ - 1)));
    return !ahead;
  }

 private:
  explicit Ticket(const Home& home) : home_(&home) {}
  const Home* home_;
  std::uint64_t number_ = 0;
  UniqueFd lock_;
};

}  // namespace

std::uint32_t StartSlot::count() {
  // With one for each processor a third of their time passes idle: a start waits for its processes, its files
  // and its guest in turn.
  return std::clamp(2 * std::thread::hardware_concurrency(), 2U, 64U);
}

Result<StartSlot> StartSlot::try_take(const Home& home) {
  DRUPE_ASSIGN(UniqueFd fd, free_slot(home));
  return StartSlot(std::move(fd));
}

Result<StartSlot> StartSlot::take(const Home& home, Deadline deadline) {
  DRUPE_ASSIGN(const Ticket ticket, Ticket::draw(home));
  while (true) {
    DRUPE_ASSIGN(const bool first, ticket.first());
    if (first) {
      DRUPE_ASSIGN(UniqueFd fd, free_slot(home));
      if (fd.valid()) return StartSlot(std::move(fd));
    }
    if (Clock::now() >= deadline)
      return fail(ErrorCode::kBusy, "Other sandboxes have been starting for too long",
                  "Try again when this machine has less to do.");
    std::this_thread::sleep_for(kPollSlots);
  }
}

}  // namespace drupe
