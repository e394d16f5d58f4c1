// One line of QMP (the QEMU Machine Protocol), parsed as coming from a hostile process: a hypervisor that its
// guest has taken over may send anything.
#pragma once

#include <cstddef>
#include <map>
#include <string>
#include <string_view>

#include "base/result.h"

namespace drupe {

inline constexpr std::size_t kMaxQmpLine = 64 * 1024;

struct QmpMessage {
  enum class Kind { kGreeting, kReturn, kError, kEvent };
  Kind kind = Kind::kEvent;
  std::string id;     ///< Of kReturn and kError.
  std::string event;  ///< Name of the event.
  std::string error;  ///< Description of the error.
  /// Scalars of the message by dotted path, as text: "return.status" -> "running", "data.guest" -> "true".
  /// Array elements have their index in the path. At most 256.
  std::map<std::string, std::string, std::less<>> fields;

  [[nodiscard]] std::string_view field(std::string_view path) const;
};

/// kGuest: not a message of this protocol, or beyond its bounds (size, depth 8, 256 scalars).
Result<QmpMessage> parse_qmp(std::string_view line);

/// {"execute": command, "arguments": arguments, "id": id} and a newline. `arguments`: JSON text or empty.
[[nodiscard]] std::string encode_qmp(std::string_view command, std::string_view arguments,
                                     std::string_view id);

}  // namespace drupe
