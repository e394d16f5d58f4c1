// One line per event on standard error, for helpers without a terminal. Guest bytes and secrets do not belong
// here.
#pragma once

#include <string_view>

namespace drupe {

enum class LogLevel { kDebug, kInfo, kWarning, kError };

/// Process-wide name in front of each line ("drupe-shim"); set once, early in main().
void set_log_name(std::string_view name);
/// Lines below `level` are dropped. Default: kInfo, or kDebug when DRUPE_DEBUG is set.
void set_log_level(LogLevel level);
/// Thread-safe; control characters in `text` are escaped, lines longer than 4096 bytes are cut.
void log(LogLevel level, std::string_view text);

}  // namespace drupe
