// Any bytes from the guest's ports and from a client: at worst the connection breaks. The first byte says
// from where.
#include <cstddef>
#include <cstdint>
#include <cstdlib>

#include <sys/socket.h>
#include <unistd.h>

#include "shim/client_hub.h"
#include "shim/guest_link.h"
#include "shim/main_command.h"
#include "shim/pass_through.h"

namespace {

using namespace drupe;

struct Pair {
  UniqueFd ours, theirs;
};

Pair make_pair() {
  int fds[2];
  if (::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, fds) != 0) std::abort();
  return {UniqueFd(fds[0]), UniqueFd(fds[1])};
}

void feed(int fd, std::string_view bytes) {
  // Inputs are small; what does not fit into the socket is not needed.
  if (::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT) < 0) return;
}

void drain(int fd) {
  char chunk[65536];
  while (::recv(fd, chunk, sizeof chunk, MSG_DONTWAIT) > 0) {
  }
}

void turn(EventLoop& loop) {
  for (int i = 0; i < 8; ++i)
    if (!loop.run_once(Clock::now())) std::abort();
}

// A link with two streams and a main command, as in a running sandbox.
struct Guest {
  explicit Guest(EventLoop& loop) : control(make_pair()), bulk(make_pair()) {
    GuestLink::Callbacks callbacks;
    callbacks.on_event = [](EventKind, std::string_view) {};
    callbacks.on_broken = [](const Error&, bool) {};
    link = std::move(*GuestLink::create(loop, control.ours.get(), bulk.ours.get(), std::move(callbacks)));
    const Marker marker = make_marker(1);
    for (const Pair* pair : {&control, &bulk}) feed(pair->theirs.get(), as_text(ByteView(marker)));
    if (!link->handshake(1, Clock::now() + std::chrono::seconds(5))) std::abort();
  }
  Pair control, bulk;
  std::unique_ptr<GuestLink> link;
};

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size < 1) return 0;
  const std::string_view bytes = as_text(ByteView(data + 1, size - 1));
  auto loop = std::move(*EventLoop::create());
  Guest guest(*loop);
  ExecOptions options;
  options.exec_id = "main";
  options.argv = {"x"};
  options.stdin_open = true;
  MainCommand main(options, std::nullopt, {});
  ClientHub::Delegate delegate;
  delegate.open_stream = [&](const ClientStreamRef& ref,
                             OpenRequest request) -> Result<std::unique_ptr<ClientSideStream>> {
    if (request.kind == OpenKind::kAttach) return main.attach(ref, request.exec.stdin_open);
    return PassThrough::open(*guest.link, ref, request);
  };
  delegate.on_request = [&](ClientId, std::uint16_t kind, ByteView body, ReplyFn reply) {
    guest.link->request(kind, as_text(body), std::move(reply));
  };
  {
    ClientHub hub(*loop, std::move(delegate));
    Pair client = make_pair();
    if (!hub.adopt(std::move(client.ours)) || !main.start(*guest.link)) std::abort();
    OpenRequest attach;
    attach.kind = OpenKind::kAttach;
    attach.exec = options;
    OpenRequest exec;
    exec.exec = options;
    exec.exec.exec_id = "e";
    std::string opens;
    append_open_frames(opens, 1, attach.encode());
    append_open_frames(opens, 2, exec.encode());
    feed(client.theirs.get(), opens);
    turn(*loop);
    const int from[] = {client.theirs.get(), guest.control.theirs.get(), guest.bulk.theirs.get()};
    feed(from[data[0] % 3], bytes);
    turn(*loop);
    for (const int fd : from) drain(fd);
    turn(*loop);
    main.guest_gone(Error{});
  }
  turn(*loop);
  return 0;
}
