#include "net/world/driver.h"

#include <sys/epoll.h>

namespace drupe::net {
namespace {

// Batches of frames before host sockets have their turn.
constexpr int kBatchesPerTurn = 8;
constexpr std::chrono::seconds kTrimAfter{5};

}  // namespace

Result<std::unique_ptr<Driver>> Driver::create(EventLoop& loop, UniqueFd socket, StackConfig config,
                                               Gate& gate, UdpGate& udp_gate) {
  DRUPE_ASSIGN(config, validated(config));
  DRUPE_ASSIGN(Link link, Link::adopt(std::move(socket), config.mtu));
  std::unique_ptr<Driver> driver(new Driver(loop, std::move(link), config, gate, udp_gate));
  DRUPE_TRY(driver->start());
  return driver;
}

Driver::Driver(EventLoop& loop, Link link, const StackConfig& config, Gate& gate, UdpGate& udp_gate)
    : loop_(loop),
      link_(std::move(link)),
      tcp_(loop, gate),
      udp_(loop, udp_gate),
      stack_(config, link_, time_, tcp_, udp_) {
  tcp_.attach(stack_.tcp());
  udp_.attach(stack_.udp());
  stack_.on_work([this] { schedule_flush(); });
  on_frame_ = [this](ByteView frame) { stack_.input(frame); };
}

Status Driver::start() {
  return loop_.watch(link_.fd(), EPOLLIN, [this](std::uint32_t events) { on_link(events); });
}

Driver::~Driver() {
  *alive_ = false;
  loop_.unwatch(link_.fd());
  loop_.cancel(timer_);
  loop_.cancel(trim_timer_);
}

void Driver::on_link(std::uint32_t events) {
  if ((events & (EPOLLIN | EPOLLERR | EPOLLHUP)) != 0) receive();
  if (ended_) return;
  after_flush((events & EPOLLOUT) != 0 ? stack_.writable() : stack_.flush());
}

void Driver::receive() {
  for (int i = 0; i < kBatchesPerTurn; ++i) {
    const auto count = link_.receive(on_frame_);
    if (!count) return broken();
    if (*count == 0) return;
    active_ = true;
    // Between batches, so that acknowledgements and data leave while the guest still sends.
    if (!stack_.flush()) return;
  }
}

void Driver::broken() {
  if (std::exchange(ended_, true)) return;
  loop_.unwatch(link_.fd());
  if (on_broken_) on_broken_();
}

void Driver::schedule_flush() {
  if (std::exchange(flush_pending_, true)) return;
  loop_.defer([this, alive = alive_] {
    if (!*alive) return;
    flush_pending_ = false;
    flush();
  });
}

void Driver::flush() {
  if (!ended_) after_flush(stack_.flush());
}

void Driver::after_flush(bool ready) {
  if (link_.broken()) return broken();
  if (ready == watching_out_) {
    watching_out_ = !ready;
    (void)loop_.modify(link_.fd(), ready ? EPOLLIN : EPOLLIN | EPOLLOUT);
  }
  if (stack_.congested())
    udp_.pause();
  else
    udp_.resume();
  arm();
  if (active_ && !trim_pending_) arm_trim();
}

void Driver::arm() {
  const TimePoint next = stack_.next_deadline();
  if (next >= armed_at_) return;
  loop_.cancel(timer_);
  armed_at_ = next;
  const auto wait = std::chrono::ceil<std::chrono::milliseconds>(next - time_.now());
  timer_ = loop_.after(std::max(wait, std::chrono::milliseconds(0)), [this] { on_timer(); });
}

void Driver::on_timer() {
  armed_at_ = TimePoint::max();
  stack_.advance();
  flush();
  arm();
}

void Driver::arm_trim() {
  trim_pending_ = true;
  active_ = false;
  trim_timer_ = loop_.after(kTrimAfter, [this] {
    trim_pending_ = false;
    if (active_)
      arm_trim();
    else
      link_.trim();
  });
}

}  // namespace drupe::net
