// The one writer of JSON for clients: pure ASCII, since one client splits lines at U+0085, U+2028 and U+2029
// wherever they stand.
#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json_writer.h"

namespace drupe::api {

/// Appends `text` as the inside of a JSON string; stops before `out` grows beyond `most` bytes and returns
/// how much of `text` was taken. Bytes that are not UTF-8 become U+FFFD.
std::size_t append_json_text(std::string& out, std::string_view text,
                             std::size_t most = std::numeric_limits<std::size_t>::max());

/// Length of the longest front of `text` that does not end within a character. At most three bytes are left
/// over, and those only when they can begin one.
[[nodiscard]] std::size_t whole_characters(std::string_view text);

/// There is no null: what is absent is left out.
class JsonWriter : public drupe::JsonWriter {
 public:
  JsonWriter();
};

/// ["a", "b"] and {"a": "b"}.
[[nodiscard]] std::string to_json(const std::vector<std::string>& values);
[[nodiscard]] std::string to_json(const std::map<std::string, std::string>& values);

/// "2026-01-02T03:04:05.123Z" of CLOCK_REALTIME.
[[nodiscard]] std::string timestamp(std::int64_t realtime_ns);

}  // namespace drupe::api
