// Writes JSON text. Values come in order; nesting is the caller's. Text that is not UTF-8 has its bad bytes
// escaped as \xNN text.
#pragma once

#include <concepts>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace drupe::cli {

class JsonWriter {
 public:
  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);
  JsonWriter& text(std::string_view value);
  JsonWriter& boolean(bool value) { return raw(value ? "true" : "false"); }
  JsonWriter& null() { return raw("null"); }
  JsonWriter& real(double value);
  template <std::integral T>
  JsonWriter& number(T value) {
    return raw(std::to_string(value));
  }
  /// Finished JSON.
  JsonWriter& raw(std::string_view json);

  // A key with its value.
  JsonWriter& field(std::string_view name, std::string_view value) { return key(name).text(value); }
  JsonWriter& field(std::string_view name, const char* value) { return key(name).text(value); }
  JsonWriter& field(std::string_view name, bool value) { return key(name).boolean(value); }
  JsonWriter& field(std::string_view name, double value) { return key(name).real(value); }
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  JsonWriter& field(std::string_view name, T value) {
    return key(name).number(value);
  }
  JsonWriter& field(std::string_view name, const std::vector<std::string>& values);

  [[nodiscard]] const std::string& str() const { return out_; }

 private:
  JsonWriter& open(char bracket);
  JsonWriter& close(char bracket);
  void separate();

  std::string out_;
  bool first_ = true;  ///< Of the innermost object or array.
  bool after_key_ = false;
};

}  // namespace drupe::cli
