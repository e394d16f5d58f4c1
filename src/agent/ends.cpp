#include "agent/ends.h"

#include <cerrno>

#include <fcntl.h>
#include <sys/ioctl.h>
#include <termios.h>

namespace drupe::agent {
namespace {

Status add_output(UniqueFd& ours, UniqueFd& theirs) {
  DRUPE_ASSIGN(Pipe pipe, make_pipe());
  DRUPE_TRY(set_nonblocking(pipe.read.get()));
  ours = std::move(pipe.read);
  theirs = std::move(pipe.write);
  return {};
}

Status add_input(UniqueFd& ours, UniqueFd& theirs) {
  DRUPE_ASSIGN(Pipe pipe, make_pipe());
  DRUPE_TRY(set_nonblocking(pipe.write.get()));
  ours = std::move(pipe.write);
  theirs = std::move(pipe.read);
  return {};
}

}  // namespace

Result<Ends> make_pipe_ends(StdinPipe in) {
  Ends ends;
  DRUPE_TRY(add_output(ends.ours.status, ends.theirs[3]));
  if (in == StdinPipe::kYes) DRUPE_TRY(add_input(ends.ours.in, ends.theirs[0]));
  DRUPE_TRY(add_output(ends.ours.out, ends.theirs[1]));
  DRUPE_TRY(add_output(ends.ours.err, ends.theirs[2]));
  return ends;
}

Result<Ends> make_task_ends() {
  Ends ends;
  DRUPE_TRY(add_output(ends.ours.status, ends.theirs[3]));
  DRUPE_TRY(add_input(ends.ours.in, ends.theirs[0]));
  DRUPE_TRY(add_output(ends.ours.out, ends.theirs[1]));
  return ends;
}

Result<Ends> make_terminal_ends(const Work& work, const ExecOptions& options) {
  Ends ends;
  DRUPE_TRY(add_output(ends.ours.status, ends.theirs[3]));
  DRUPE_ASSIGN(UniqueFd master, work.open_pty());
  const int unlock = 0;
  ::ioctl(master.get(), TIOCSPTLCK, &unlock);
  const int slave = ::ioctl(master.get(), TIOCGPTPEER, O_RDWR | O_NOCTTY | O_CLOEXEC);
  if (slave < 0) return fail_sys("Opening a terminal failed", errno);
  winsize window{};
  window.ws_row = options.rows;
  window.ws_col = options.columns;
  ::ioctl(master.get(), TIOCSWINSZ, &window);
  DRUPE_TRY(set_nonblocking(master.get()));
  ends.theirs[0] = UniqueFd(slave);
  ends.theirs[1] = UniqueFd(::fcntl(slave, F_DUPFD_CLOEXEC, 0));
  ends.theirs[2] = UniqueFd(::fcntl(slave, F_DUPFD_CLOEXEC, 0));
  // One description, two numbers: the loop watches each for its own direction.
  ends.ours.in = UniqueFd(::fcntl(master.get(), F_DUPFD_CLOEXEC, 0));
  ends.ours.out = std::move(master);
  ends.ours.tty = true;
  return ends;
}

}  // namespace drupe::agent
