// What a sandbox may ask of its own life: a server on 127.0.0.1:1029 and a FIFO, for as long as the host
// listens.
#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <list>
#include <string>
#include <string_view>

#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "agent/tasks.h"
#include "base/files.h"
#include "base/unique_fd.h"

namespace drupe::agent {
namespace {

constexpr std::uint16_t kPort = 1029;
constexpr const char* kFifo = "/run/self";
constexpr std::size_t kMostConnections = 16;
constexpr std::size_t kMostHead = 8192;
constexpr std::size_t kMostWord = 64;
constexpr int kTries = 40;
constexpr useconds_t kBetweenTries = 50'000;
/// A client that says nothing for so long, or does not close, is left.
constexpr std::chrono::seconds kPatience{5};
using Clock = std::chrono::steady_clock;

struct Connection {
  UniqueFd fd;
  std::string head;
  bool answered = false;  ///< What still comes is read away, so that the answer is not lost with a reset.
  Clock::time_point limit = Clock::now() + kPatience;
};

Result<UniqueFd> listen_locally() {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  if (!fd.valid()) return fail_sys("Opening a socket failed", errno);
  const int yes = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(kPort);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0 ||
      ::listen(fd.get(), static_cast<int>(kMostConnections)) != 0)
    return fail_sys("Listening on port 1029 in the guest failed", errno);
  return fd;
}

/// Of both ends, so that it never ends. Not valid where it cannot be made: the server is enough.
UniqueFd open_fifo() {
  ::mkdir("/run", 0755);
  struct stat info{};
  if (::lstat(kFifo, &info) == 0 && !S_ISFIFO(info.st_mode)) return {};
  if (::mkfifo(kFifo, 0622) != 0 && errno != EEXIST) return {};
  ::chmod(kFifo, 0622);  // whatever the umask is
  return UniqueFd(::open(kFifo, O_RDWR | O_NONBLOCK | O_NOFOLLOW | O_CLOEXEC));
}

/// Status of the answer to a request's first line; 202 for what is done.
int status_of(std::string_view head, std::string_view& asked) {
  const std::string_view line = head.substr(0, head.find("\r\n"));
  const auto space = line.find(' ');
  if (space == std::string_view::npos) return 400;
  std::string_view path = line.substr(space + 1);
  path = path.substr(0, path.find_first_of(" ?"));
  if (path == "/self/pause")
    asked = "pause\n";
  else if (path == "/self/delete")
    asked = "delete\n";
  else
    return 404;
  return line.substr(0, space) == "POST" ? 202 : 405;
}

std::string_view reason_of(int status) {
  return status == 202   ? "Accepted"
         : status == 404 ? "Not Found"
         : status == 405 ? "Method Not Allowed"
                         : "Bad Request";
}

class SelfServer {
 public:
  SelfServer(UniqueFd listener, UniqueFd fifo) : listener_(std::move(listener)), fifo_(std::move(fifo)) {}

  /// Until the host no longer listens.
  void run() {
    while (true) {
      std::array<pollfd, kMostConnections + 3> waiting{};
      std::size_t count = 0;
      // The host's end of stdin says when it has gone.
      waiting.at(count++) = {STDIN_FILENO, POLLIN, 0};
      waiting.at(count++) = {fifo_.valid() ? fifo_.get() : -1, POLLIN, 0};
      waiting.at(count++) = {connections_.size() < kMostConnections ? listener_.get() : -1, POLLIN, 0};
      for (const Connection& one : connections_) waiting.at(count++) = {one.fd.get(), POLLIN, 0};
      if (::poll(waiting.data(), count, connections_.empty() ? -1 : 1000) < 0 && errno != EINTR) return;
      if (waiting[0].revents != 0) return;
      if (waiting[1].revents != 0) read_fifo();
      std::size_t at = 3;
      for (auto one = connections_.begin(); one != connections_.end(); ++at) {
        const bool ready = waiting.at(at).revents != 0;
        const bool over = (ready && !serve(*one)) || Clock::now() >= one->limit;
        one = over ? connections_.erase(one) : std::next(one);
      }
      if (waiting[2].revents != 0) {
        UniqueFd fd(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
        if (fd.valid()) connections_.push_back({std::move(fd), {}});
      }
    }
  }

 private:
  void ask(std::string_view what) {
    if (!write_all(STDOUT_FILENO, what)) ::_exit(1);
  }

  void read_fifo() {
    std::array<char, 256> part{};
    const ssize_t got = ::read(fifo_.get(), part.data(), part.size());
    for (ssize_t i = 0; i < got; ++i) {
      const char c = part.at(static_cast<std::size_t>(i));
      if (c != '\n') {
        if (word_.size() < kMostWord) word_ += c;
        continue;
      }
      take_word();
    }
    // `printf park` ends without a newline.
    if (got > 0 && (word_ == "park" || word_ == "retire")) take_word();
  }
  void take_word() {
    if (word_ == "park") ask("pause\n");
    if (word_ == "retire") ask("delete\n");
    word_.clear();
  }

  /// False when it is over.
  bool serve(Connection& one) {
    std::array<char, 4096> part{};
    const ssize_t got = ::read(one.fd.get(), part.data(), part.size());
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    if (one.answered) return true;
    one.head.append(part.data(), static_cast<std::size_t>(got));
    const bool whole = one.head.find("\r\n\r\n") != std::string::npos;
    if (!whole && one.head.size() < kMostHead) return true;
    std::string_view asked;
    const int status = whole ? status_of(one.head, asked) : 400;
    const std::string answer = "HTTP/1.1 " + std::to_string(status) + " " + std::string(reason_of(status)) +
                               "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
    // Sent before the host is told: the freeze comes after it.
    const ssize_t sent = ::send(one.fd.get(), answer.data(), answer.size(), MSG_NOSIGNAL);
    ::shutdown(one.fd.get(), SHUT_WR);
    one.answered = true;
    one.limit = Clock::now() + kPatience;
    if (status == 202 && sent == static_cast<ssize_t>(answer.size())) ask(asked);
    return true;
  }

  UniqueFd listener_, fifo_;
  std::string word_;
  std::list<Connection> connections_;
};

}  // namespace

Result<std::string> self_task() {
  auto listener = listen_locally();
  // The one of before a restore may not be gone yet.
  for (int tries = 0; !listener && tries < kTries; ++tries) {
    ::usleep(kBetweenTries);
    listener = listen_locally();
  }
  if (!listener) return std::unexpected(std::move(listener).error());
  SelfServer(*std::move(listener), open_fifo()).run();
  return std::string();
}

}  // namespace drupe::agent
