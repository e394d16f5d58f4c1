#include "api/tls/front.h"

#include <future>
#include <map>
#include <mutex>

#include <fcntl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include "api/service/loop_thread.h"
#include "api/tls/context.h"
#include "api/tls/link.h"
#include "base/log.h"

namespace drupe::api {
namespace {

constexpr std::chrono::seconds kLook{2};

/// What tells one state of a file from another.
struct Stamp {
  ino_t inode = 0;
  off_t size = 0;
  std::int64_t seconds = 0, nanoseconds = 0;
  bool operator==(const Stamp&) const = default;
};

Stamp stamp_of(const std::string& path) {
  struct stat info{};
  if (::stat(path.c_str(), &info) != 0) return {};
  return {info.st_ino, info.st_size, info.st_mtim.tv_sec, info.st_mtim.tv_nsec};
}

class Front final : public TlsFront {
 public:
  Front(TlsFiles files, TlsContext context, std::unique_ptr<LoopThread> thread)
      : files_(std::move(files)), context_(std::move(context)), thread_(std::move(thread)) {
    look_at_ = {stamp_of(files_.certificate), stamp_of(files_.key)};
    thread_->post([this] { look(); });
  }
  ~Front() override {
    // They end on the thread whose loop watches them.
    std::promise<void> ended;
    thread_->post([this, &ended] {
      links_.clear();
      ended.set_value();
    });
    ended.get_future().wait();
    thread_.reset();
  }

  Result<UniqueFd> adopt(UniqueFd tcp) override {
    int pair[2];
    if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0, pair) != 0)
      return fail_sys("Making a socket pair failed", errno);
    UniqueFd ours(pair[0]);
    UniqueFd theirs(pair[1]);
    auto socket = std::make_shared<UniqueFd>(std::move(tcp));
    auto plain = std::make_shared<UniqueFd>(std::move(ours));
    thread_->post([this, socket, plain] { begin(std::move(*socket), std::move(*plain)); });
    return theirs;
  }

  Status reload() override {
    DRUPE_ASSIGN(TlsContext fresh, make_context(files_));
    const std::scoped_lock lock(mutex_);
    context_ = std::move(fresh);
    return {};
  }

 private:
  void begin(UniqueFd tcp, UniqueFd plain) {
    const std::uint64_t number = next_++;
    const std::scoped_lock lock(mutex_);
    // Not within its own callback.
    auto over = [this, number] { thread_->loop().defer([this, number] { links_.erase(number); }); };
    auto link =
        TlsLink::create(thread_->loop(), *context_, std::move(tcp), std::move(plain), std::move(over));
    if (link)
      links_[number] = *std::move(link);
    else
      log(LogLevel::kWarning, link.error().message);
  }

  void look() {
    const std::pair now{stamp_of(files_.certificate), stamp_of(files_.key)};
    if (now != look_at_) {
      look_at_ = now;
      if (auto loaded = reload(); loaded)
        log(LogLevel::kInfo, "The certificate was read again");
      else
        log(LogLevel::kWarning, "The certificate in use stays: " + loaded.error().message);
    }
    thread_->loop().after(kLook, [this] { look(); });
  }

  const TlsFiles files_;
  std::mutex mutex_;
  TlsContext context_;  ///< Under mutex_; links hold it.
  // The loop's thread only.
  std::map<std::uint64_t, std::unique_ptr<TlsLink>> links_;
  std::uint64_t next_ = 1;
  std::pair<Stamp, Stamp> look_at_;
  std::unique_ptr<LoopThread> thread_;
};

}  // namespace

Result<std::unique_ptr<TlsFront>> TlsFront::start(TlsFiles files) {
  DRUPE_ASSIGN(TlsContext context, make_context(files));
  DRUPE_ASSIGN(auto thread, LoopThread::start("tls"));
  return std::make_unique<Front>(std::move(files), std::move(context), std::move(thread));
}

}  // namespace drupe::api
