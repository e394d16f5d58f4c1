#include "shim/network.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include <fcntl.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <unistd.h>

#include "base/bytes.h"
#include "base/pass_fds.h"
#include "base/spawn.h"
#include "protocol/messages.h"
#include "protocol/net_ledger.h"

namespace drupe {
namespace {

constexpr std::size_t kHead = 2 * sizeof(std::uint32_t);
constexpr std::size_t kMaxQueued = 2 * net::kMaxControlRecord;

Error gone(const std::string& reason) {
  return Error{ErrorCode::kUnavailable, "The sandbox's network process has ended: " + reason,
               "It is started again; try once more in a moment.", 0};
}

Result<UniqueFd> copy_of(int fd) {
  UniqueFd copy(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return fail_sys("Copying a descriptor failed", errno);
  return copy;
}

}  // namespace

Network::Network(EventLoop& loop, Start start, UniqueFd frames, net::NetConfig config)
    : loop_(loop), start_(std::move(start)), frames_(std::move(frames)), config_(std::move(config)) {}

Network::~Network() {
  *alive_ = false;
  end_process();
}

void Network::end_process() {
  if (control_.valid()) loop_.unwatch(control_.get());
  control_.reset();
  if (child_.pid <= 0) return;
  loop_.unwatch(child_.pidfd.get());
  kill_child(child_);
  [[maybe_unused]] const auto ended = wait_for(child_);
  child_ = {};
}

Status Network::begin(Deadline deadline) {
  end_process();
  in_.clear();
  out_.clear();
  passed_.clear();
  ready_.reset();
  DRUPE_ASSIGN(UniqueFd log, copy_of(STDERR_FILENO));
  DRUPE_ASSIGN(UniqueFd frames, copy_of(frames_.get()));
  auto started = start_(std::move(log), std::move(frames), deadline);
  if (!started)
    return std::unexpected(std::move(started).error().in("Starting the sandbox's network process failed"));
  child_ = std::move(started->child);
  missing_ = std::move(started->confinement_missing);
  control_ = std::move(started->control);
  DRUPE_TRY(loop_.watch(control_.get(), EPOLLIN, [this](std::uint32_t events) { on_control(events); }));
  DRUPE_TRY(loop_.watch(child_.pidfd.get(), EPOLLIN, [this](std::uint32_t) {
    const auto status = try_wait(child_);
    if (!status || !*status) return;
    loop_.unwatch(child_.pidfd.get());
    child_ = {};
    lose(describe_wait_status(**status));
  }));
  config_.used_bytes = used_bytes();
  if (!ledger_.valid()) {
    DRUPE_ASSIGN(ledger_, net::make_ledger());
  }
  config_.ledger = true;
  DRUPE_ASSIGN(UniqueFd ledger, copy_of(ledger_.get()));
  request(
      net::NetRequest::kConfigure, config_.encode(),
      [this](const Result<std::string>& answer) { ready_ = accept(answer); }, std::move(ledger));
  if (peer_listener_ >= 0) {
    DRUPE_ASSIGN(UniqueFd listener, copy_of(peer_listener_));
    request(net::NetRequest::kPeerListener, {}, [](const Result<std::string>&) {}, std::move(listener));
  }
  // Only ever of use to one process.
  config_.flows.clear();
  return {};
}

// The process may have been taken over: it can say more than was used, never less than was known.
std::uint64_t Network::used_bytes() const {
  return std::max(config_.used_bytes, ledger_.valid() ? net::ledger_used_bytes(ledger_.get()) : 0);
}

Status Network::accept(const Result<std::string>& answer) {
  if (!answer) return std::unexpected(answer.error());
  DRUPE_ASSIGN(const net::NetReady ready, net::NetReady::decode(as_bytes(*answer)));
  missing_.insert(missing_.end(), ready.confinement_missing.begin(), ready.confinement_missing.end());
  return {};
}

Status Network::await_ready(Deadline deadline) {
  DRUPE_ASSIGN(const bool came, loop_.run_until([this] { return ready_.has_value(); }, deadline));
  if (!came) return fail(ErrorCode::kTimeout, "The sandbox's network process did not answer in time");
  return *ready_;
}

void Network::request(net::NetRequest kind, std::string_view body, Reply done, UniqueFd pass) {
  const char* why = nullptr;
  if (!control_.valid()) why = "it is not running";
  if (body.size() > net::kMaxControlRecord - kHead || out_.size() > kMaxQueued) why = "it is far behind";
  if (why != nullptr) {
    loop_.defer([done = std::move(done), error = gone(why)] { done(std::unexpected(error)); });
    return;
  }
  if (next_request_ == net::kNetEventId) ++next_request_;
  const std::uint32_t id = next_request_++;
  if (pass.valid()) passed_.push_back({out_.size(), std::move(pass)});
  requests_[id] = std::move(done);
  const std::string payload = encode_request(static_cast<std::uint16_t>(kind), body);
  ByteWriter writer;
  writer.number(static_cast<std::uint32_t>(sizeof id + payload.size())).number(id);
  out_ += writer.bytes();
  out_ += payload;
  flush();
}

Result<std::string> Network::call(net::NetRequest kind, std::string_view body, Deadline deadline) {
  // Shared: after the deadline the reply finds nobody waiting.
  auto reply = std::make_shared<std::optional<Result<std::string>>>();
  request(kind, body, [reply](Result<std::string> result) { *reply = std::move(result); });
  DRUPE_ASSIGN(const bool came, loop_.run_until([&] { return reply->has_value(); }, deadline));
  if (!came) return fail(ErrorCode::kTimeout, "The sandbox's network process did not answer in time");
  return std::move(**reply);
}

void Network::flush() {
  while (!out_.empty()) {
    const bool passes = !passed_.empty() && passed_.front().at == 0;
    const std::size_t next = passes ? 1 : 0;
    const std::size_t most = passed_.size() > next ? passed_[next].at : out_.size();
    const int fd = passes ? passed_.front().fd.get() : -1;
    const auto sent = send_with_fds(control_.get(), std::string_view(out_).substr(0, most),
                                    passes ? std::span<const int>(&fd, 1) : std::span<const int>());
    if (!sent) {
      // Its end tells what a broken socket means.
      if (sent.error().sys_errno != EAGAIN) {
        out_.clear();
        passed_.clear();
      }
      break;
    }
    if (passes) passed_.pop_front();
    out_.erase(0, *sent);
    for (Passed& later : passed_) later.at -= *sent;
  }
  [[maybe_unused]] const auto changed =
      loop_.modify(control_.get(), out_.empty() ? EPOLLIN : EPOLLIN | EPOLLOUT);
}

void Network::on_control(std::uint32_t events) {
  if ((events & EPOLLOUT) != 0) flush();
  if ((events & ~static_cast<std::uint32_t>(EPOLLOUT)) != 0) receive();
}

// What it says is bounded and otherwise taken as hostile: it handles the guest's packets.
void Network::receive() {
  std::array<char, 65536> chunk{};
  const ssize_t got = ::recv(control_.get(), chunk.data(), chunk.size(), 0);
  if (got < 0 && (errno == EAGAIN || errno == EINTR)) return;
  if (got <= 0) {
    // It ends, or has given up: either way it is of no more use.
    loop_.unwatch(control_.get());
    return kill_child(child_);
  }
  in_.append(chunk.data(), static_cast<std::size_t>(got));
  const auto alive = alive_;
  std::size_t at = 0;
  while (in_.size() - at >= kHead) {
    std::uint32_t length = 0;
    std::uint32_t id = 0;
    std::memcpy(&length, in_.data() + at, sizeof length);
    std::memcpy(&id, in_.data() + at + sizeof length, sizeof id);
    if (length < sizeof id || length > net::kMaxControlRecord) {
      loop_.unwatch(control_.get());
      return kill_child(child_);
    }
    if (in_.size() - at < sizeof length + length) break;
    const std::string payload = in_.substr(at + kHead, length - sizeof id);
    at += sizeof length + length;
    if (id == net::kNetEventId) {
      if (on_event_) on_event_(as_bytes(payload));
      if (!*alive) return;
      continue;
    }
    const auto found = requests_.find(id);
    if (found == requests_.end()) continue;
    const Reply done = std::move(found->second);
    requests_.erase(found);
    done(decode_reply(as_bytes(payload)));
    if (!*alive) return;
  }
  in_.erase(0, at);
}

void Network::lose(const std::string& reason) {
  if (control_.valid()) loop_.unwatch(control_.get());
  control_.reset();
  const auto alive = alive_;
  for (auto& [id, done] : std::exchange(requests_, {})) done(std::unexpected(gone(reason)));
  if (*alive && on_end_) on_end_(reason);
}

}  // namespace drupe
