#include "api/json/writer.h"

#include <array>
#include <cstdio>
#include <ctime>

namespace drupe::api {
namespace {

struct Character {
  std::uint32_t code = 0xFFFD;
  std::size_t length = 1;
  bool cut = false;  ///< `text` ends within it.
};

/// The first character of `text`, which is not empty (RFC 3629: no surrogates, nothing overlong).
Character first_character(std::string_view text) {
  const auto byte = [&](std::size_t i) { return static_cast<std::uint8_t>(text[i]); };
  const std::uint8_t lead = byte(0);
  if (lead < 0x80) return {lead, 1, false};
  const std::size_t length = lead >= 0xF0 ? 4 : lead >= 0xE0 ? 3 : 2;
  if (lead < 0xC2 || lead > 0xF4) return {};
  std::uint32_t code = lead & (0xFFU >> (length + 1));
  for (std::size_t i = 1; i < length; ++i) {
    if (i == text.size()) return {0xFFFD, i, true};
    if ((byte(i) & 0xC0) != 0x80) return {0xFFFD, i, false};
    const bool bad_second = i == 1 && ((lead == 0xE0 && byte(1) < 0xA0) || (lead == 0xED && byte(1) > 0x9F) ||
                                       (lead == 0xF0 && byte(1) < 0x90) || (lead == 0xF4 && byte(1) > 0x8F));
    if (bad_second) return {};
    code = (code << 6) | (byte(i) & 0x3FU);
  }
  return {code, length, false};
}

void append_escape(std::string& out, std::uint32_t unit) {
  std::array<char, 8> text{};
  std::snprintf(text.data(), text.size(), "\\u%04x", unit & 0xFFFFU);
  out += text.data();
}

}  // namespace

std::size_t append_json_text(std::string& out, std::string_view text, std::size_t most) {
  constexpr std::size_t kLongest = 12;  // two escapes for one character beyond the first plane
  std::size_t done = 0;
  while (done < text.size() && (most - std::min(most, out.size()) >= kLongest)) {
    const char c = text[done];
    if (c >= 0x20 && c < 0x7F && c != '"' && c != '\\') {
      out += c;
      ++done;
      continue;
    }
    const Character character = first_character(text.substr(done));
    done += character.length;
    if (character.code == '"' || character.code == '\\') {
      out += '\\';
      out += c;
    } else if (character.code == '\n') {
      out += "\\n";
    } else if (character.code >= 0x10000) {
      append_escape(out, 0xD800 + ((character.code - 0x10000) >> 10));
      append_escape(out, 0xDC00 + ((character.code - 0x10000) & 0x3FF));
    } else {
      append_escape(out, character.code);
    }
  }
  return done;
}

std::size_t whole_characters(std::string_view text) {
  for (std::size_t back = 1; back <= 3 && back <= text.size(); ++back) {
    const auto byte = static_cast<std::uint8_t>(text[text.size() - back]);
    if (byte < 0x80) break;
    if (byte < 0xC0) continue;
    return first_character(text.substr(text.size() - back)).cut ? text.size() - back : text.size();
  }
  return text.size();
}

namespace {

void append_whole_text(std::string& out, std::string_view text) {
  append_json_text(out, text);
}

}  // namespace

JsonWriter::JsonWriter() : drupe::JsonWriter(append_whole_text) {}

std::string to_json(const std::vector<std::string>& values) {
  JsonWriter json;
  json.begin_array();
  for (const auto& value : values) json.text(value);
  return json.end_array().take();
}

std::string to_json(const std::map<std::string, std::string>& values) {
  JsonWriter json;
  json.begin_object();
  for (const auto& [key, value] : values) json.field(key, value);
  return json.end_object().take();
}

std::string timestamp(std::int64_t realtime_ns) {
  const std::time_t seconds = realtime_ns / 1'000'000'000;
  std::tm parts{};
  ::gmtime_r(&seconds, &parts);
  std::array<char, 64> text{};
  const auto used = std::strftime(text.data(), text.size(), "%Y-%m-%dT%H:%M:%S", &parts);
  std::snprintf(text.data() + used, text.size() - used, ".%03dZ",
                static_cast<int>(realtime_ns % 1'000'000'000 / 1'000'000));
  return text.data();
}

}  // namespace drupe::api
