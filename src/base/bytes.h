// Bounded little-endian encoding of messages. Both the host and the guest agent decode hostile bytes with it.
#pragma once

#include <bit>
#include <concepts>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace drupe {

static_assert(std::endian::native == std::endian::little, "the wire format is little-endian");

using ByteView = std::span<const std::uint8_t>;

[[nodiscard]] inline ByteView as_bytes(std::string_view text) {
  return {reinterpret_cast<const std::uint8_t*>(text.data()), text.size()};
}
[[nodiscard]] inline std::string_view as_text(ByteView bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

/// Appends values to a string of bytes.
class ByteWriter {
 public:
  template <std::integral T>
  ByteWriter& number(T value) {
    char raw[sizeof(T)];
    std::memcpy(raw, &value, sizeof(T));
    out_.append(raw, sizeof(T));
    return *this;
  }
  ByteWriter& flag(bool value) { return number<std::uint8_t>(value ? 1 : 0); }
  /// u32 length, then the bytes.
  ByteWriter& text(std::string_view value) {
    number(static_cast<std::uint32_t>(value.size()));
    out_.append(value);
    return *this;
  }
  /// u32 count, then each text.
  ByteWriter& texts(const std::vector<std::string>& values) {
    number(static_cast<std::uint32_t>(values.size()));
    for (const auto& value : values) text(value);
    return *this;
  }
  [[nodiscard]] const std::string& bytes() const { return out_; }
  [[nodiscard]] std::string take() { return std::move(out_); }

 private:
  std::string out_;
};

/// Reads what ByteWriter wrote. After the first value that does not fit, ok() is false and every later read
/// gives an empty value, so a decoder may read all fields first and check once.
class ByteReader {
 public:
  explicit ByteReader(ByteView bytes) : rest_(bytes) {}
  explicit ByteReader(std::string_view bytes) : rest_(as_bytes(bytes)) {}

  template <std::integral T>
  [[nodiscard]] T number() {
    T value{};
    if (!ok_ || rest_.size() < sizeof(T)) {
      ok_ = false;
      return value;
    }
    std::memcpy(&value, rest_.data(), sizeof(T));
    rest_ = rest_.subspan(sizeof(T));
    return value;
  }
  [[nodiscard]] bool flag() {
    const auto value = number<std::uint8_t>();
    if (value > 1) ok_ = false;
    return value == 1;
  }
  [[nodiscard]] std::string text() {
    const auto size = number<std::uint32_t>();
    if (!ok_ || rest_.size() < size) {
      ok_ = false;
      return {};
    }
    std::string value(as_text(rest_.first(size)));
    rest_ = rest_.subspan(size);
    return value;
  }
  [[nodiscard]] std::vector<std::string> texts() {
    const auto count = number<std::uint32_t>();
    std::vector<std::string> values;
    // Each text takes at least its length field, so a hostile count cannot make this loop or allocate for
    // long.
    for (std::uint32_t i = 0; ok_ && i < count; ++i) values.push_back(text());
    return values;
  }
  [[nodiscard]] bool ok() const { return ok_; }
  /// True when everything was read and nothing is left.
  [[nodiscard]] bool done() const { return ok_ && rest_.empty(); }
  [[nodiscard]] ByteView rest() const { return rest_; }

 private:
  ByteView rest_;
  bool ok_ = true;
};

}  // namespace drupe
