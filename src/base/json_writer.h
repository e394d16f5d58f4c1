// Writes JSON text. Values come in order; nesting is the caller's. How text looks inside a string is the
// writer's own.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace drupe {

class JsonWriter {
 public:
  /// Appends `text` as the inside of a JSON string.
  using AppendText = void (*)(std::string& out, std::string_view text);
  explicit JsonWriter(AppendText append_text) : append_text_(append_text) {}

  JsonWriter& begin_object() { return open('{'); }
  JsonWriter& end_object() { return close('}'); }
  JsonWriter& begin_array() { return open('['); }
  JsonWriter& end_array() { return close(']'); }
  JsonWriter& key(std::string_view name);
  JsonWriter& text(std::string_view value);
  JsonWriter& boolean(bool value) { return raw(value ? "true" : "false"); }
  /// Three decimals; what is not finite, which JSON cannot say, is 0.
  JsonWriter& real(double value);
  template <std::integral T>
  JsonWriter& number(T value) {
    return raw(std::to_string(value));
  }
  /// Finished JSON.
  JsonWriter& raw(std::string_view json);

  // A key with its value.
  JsonWriter& field(std::string_view name, std::string_view value) { return key(name).text(value); }
  JsonWriter& field(std::string_view name, const std::string& value) { return key(name).text(value); }
  JsonWriter& field(std::string_view name, const char* value) { return key(name).text(value); }
  JsonWriter& field(std::string_view name, bool value) { return key(name).boolean(value); }
  JsonWriter& field(std::string_view name, double value) { return key(name).real(value); }
  template <std::integral T>
    requires(!std::same_as<T, bool>)
  JsonWriter& field(std::string_view name, T value) {
    return key(name).number(value);
  }
  JsonWriter& field(std::string_view name, const std::vector<std::string>& values);
  /// Left out when there is no value.
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

  AppendText append_text_;
  std::string out_;
  bool first_ = true;  ///< Of the innermost object or array.
  bool after_key_ = false;
};

}  // namespace drupe
