// Another form for the lines of the log.
#pragma once

#include <string>
#include <string_view>

#include "base/log.h"

namespace drupe {

/// The whole line with its newline, for a text that is not escaped yet; called in any thread.
using LogFormat = std::string (*)(std::string_view stamp, std::string_view name, std::string_view level,
                                  std::string_view text);
/// Process-wide; set once, early in main().
void set_log_format(LogFormat format);

}  // namespace drupe
