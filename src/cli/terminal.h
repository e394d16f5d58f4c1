// The user's terminal: raw while a PTY command runs, and always given back as it was.
#pragma once

#include <cstdint>
#include <optional>

#include <termios.h>

namespace drupe::cli {

struct TerminalSize {
  std::uint16_t rows = 24, columns = 80;
};
/// Of the terminal behind stdin, stdout or stderr; 24 x 80 when none of them is one.
[[nodiscard]] TerminalSize terminal_size();

/// Puts the terminal on `fd` into raw mode for its lifetime. Does nothing when `fd` is no terminal.
class RawTerminal {
 public:
  explicit RawTerminal(int fd);
  ~RawTerminal() { restore(); }
  RawTerminal(const RawTerminal&) = delete;
  RawTerminal& operator=(const RawTerminal&) = delete;
  void restore();
  /// After SIGCONT the shell may have set it otherwise.
  void enter_again();

 private:
  const int fd_;
  std::optional<termios> before_;
};

}  // namespace drupe::cli
