// The one writer of JSON for clients: pure ASCII, since one client splits lines at U+0085, U+2028 and U+2029
// wherever they stand.
#pragma once

#include <concepts>
#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace drupe::api {

/// Appends `text` as the inside of a JSON string; stops before `out` grows beyond `most` bytes and returns
/// how much of `text` was taken. Bytes that are not UTF-8 become U+FFFD.
std::size_t append_json_text(std::string& out, std::string_view text,
                             std::size_t most = std::numeric_limits<std::size_t>::max());

/// Length of the longest front of `text` that does not end within a character. At most three bytes are left
/// over, and those only when they can begin one.
[[nodiscard]] std::size_t whole_characters(std::string_view text);

/// Values come in order; nesting is the caller's. There is no null: what is absent is left out.
class JsonWriter {
 public:
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);
  JsonWriter& text(std::string_view value);
  /// Milliseconds and the like: three decimals.
  JsonWriter& real(double value);
  /// Finished JSON.
  JsonWriter& raw(std::string_view json);

  JsonWriter& field(std::string_view name, std::string_view value) { return key(name).text(value); }
  JsonWriter& field(std::string_view name, const std::string& value) { return key(name).text(value); }
  JsonWriter& field(std::string_view name, const char* value) { return key(name).text(value); }
  JsonWriter& field(std::string_view name, bool value) { return key(name).raw(value ? "true" : "false"); }
  JsonWriter& field(std::string_view name, double value) { return key(name).real(value); }
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  JsonWriter& field(std::string_view name, T value) {
    return key(name).raw(std::to_string(value));
  }
  JsonWriter& field(std::string_view name, const std::vector<std::string>& values);
  template <class T>
  JsonWriter& field(std::string_view name, const std::optional<T>& value) {
    return value ? field(name, *value) : *this;
  }

  [[nodiscard]] const std::string& str() const { return out_; }
  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  void separate();

  std::string out_;
  bool first_ = true;  ///< Of the innermost object or array.
  bool after_key_ = false;
};

/// ["a", "b"] and {"a": "b"}.
[[nodiscard]] std::string to_json(const std::vector<std::string>& values);
[[nodiscard]] std::string to_json(const std::map<std::string, std::string>& values);

/// "2026-01-02T03:04:05.123Z" of CLOCK_REALTIME.
[[nodiscard]] std::string timestamp(std::int64_t realtime_ns);

}  // namespace drupe::api
