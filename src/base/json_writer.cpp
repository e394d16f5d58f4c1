#include "base/json_writer.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace drupe {

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

JsonWriter& JsonWriter::text(std::string_view value) {
  separate();
  out_ += '"';
  append_text_(out_, value);
  out_ += '"';
  return *this;
}

JsonWriter& JsonWriter::real(double value) {
  std::array<char, 40> digits{};
  std::snprintf(digits.data(), digits.size(), "%.3f", std::isfinite(value) ? value : 0.0);
  return raw(digits.data());
}

JsonWriter& JsonWriter::raw(std::string_view json) {
  separate();
  out_ += json;
  return *this;
}

JsonWriter& JsonWriter::field(std::string_view name, const std::vector<std::string>& values) {
  key(name).begin_array();
  for (const auto& value : values) text(value);
  return end_array();
}

}  // namespace drupe
