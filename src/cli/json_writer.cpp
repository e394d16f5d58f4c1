#include "cli/json_writer.h"

#include <array>
#include <cmath>
#include <cstdio>

#include "cli/values.h"

namespace drupe::cli {

void JsonWriter::separate() {
  if (!first_ && !after_key_) out_ += ',';
  first_ = false;
  after_key_ = false;
}

JsonWriter& JsonWriter::open(char bracket) {
  separate();
  out_ += bracket;
  first_ = true;
  return *this;
}

JsonWriter& JsonWriter::close(char bracket) {
  out_ += bracket;
  first_ = false;
  return *this;
}

JsonWriter& JsonWriter::key(std::string_view name) {
  text(name);
  out_ += ':';
  after_key_ = true;
  return *this;
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  out_ += json;
  return *this;
}

JsonWriter& JsonWriter::real(double value) {
  if (!std::isfinite(value)) return null();
  std::array<char, 40> digits{};
  std::snprintf(digits.data(), digits.size(), "%.3f", value);
  return raw(digits.data());
}

JsonWriter& JsonWriter::text(std::string_view value) {
  separate();
  const std::string safe = is_utf8(value) ? std::string() : printable(value);
  if (!safe.empty()) value = safe;
  out_ += '"';
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      out_ += '\\';
      out_ += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      std::array<char, 8> escaped{};
      std::snprintf(escaped.data(), escaped.size(), "\\u%04x",
                    static_cast<unsigned>(static_cast<unsigned char>(c)));
      out_ += escaped.data();
    } else {
      out_ += c;
    }
  }
  out_ += '"';
  return *this;
}

JsonWriter& JsonWriter::field(std::string_view name, const std::vector<std::string>& values) {
  key(name).begin_array();
  for (const auto& value : values) text(value);
  return end_array();
}

}  // namespace drupe::cli
