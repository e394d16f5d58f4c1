#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

namespace drupe::cli {

TerminalSize terminal_size() {
  for (const int fd : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    winsize size{};
    if (::ioctl(fd, TIOCGWINSZ, &size) == 0 && size.ws_row > 0 && size.ws_col > 0)
      return {size.ws_row, size.ws_col};
  }
  return {};
}

RawTerminal::RawTerminal(int fd) : fd_(fd) {
  termios before{};
  if (::tcgetattr(fd_, &before) != 0) return;
  before_ = before;
  enter_again();
}

void RawTerminal::enter_again() {
  if (!before_) return;
  termios raw = *before_;
  ::cfmakeraw(&raw);
  ::tcsetattr(fd_, TCSADRAIN, &raw);
}

void RawTerminal::restore() {
  if (before_) ::tcsetattr(fd_, TCSADRAIN, &*before_);
  before_.reset();
}

}  // namespace drupe::cli
