#include "shim/record_json.h"

#include <cmath>

#include "base/ids.h"

namespace drupe::record_json {
namespace {

// Length of the well-formed UTF-8 sequence at `at`, or 0. Overlong forms, surrogates and values beyond
// U+10FFFF are not well-formed; the JSON library refuses them.
std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned char lead = byte(0);
  if (lead < 0x80) return 1;
  const std::size_t length = lead >= 0xf0 ? 4 : lead >= 0xe0 ? 3 : 2;
  if (lead < 0xc2 || lead > 0xf4 || at + length > text.size()) return 0;
  for (std::size_t i = 1; i < length; ++i)
    if ((byte(i) & 0xc0) != 0x80) return 0;
  if ((lead == 0xe0 && byte(1) < 0xa0) || (lead == 0xed && byte(1) > 0x9f)) return 0;
  if ((lead == 0xf0 && byte(1) < 0x90) || (lead == 0xf4 && byte(1) > 0x8f)) return 0;
  return length;
}

bool is_utf8(std::string_view text) {
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    if (length == 0) return false;
    at += length;
  }
  return true;
}

int nibble(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

bool from_hex(const std::string& hex, std::string& out) {
  if (hex.size() % 2 != 0) return false;
  out.clear();
  for (std::size_t i = 0; i < hex.size(); i += 2) {
    const int high = nibble(hex[i]);
    const int low = nibble(hex[i + 1]);
    if (high < 0 || low < 0) return false;
    out.push_back(static_cast<char>(high * 16 + low));
  }
  return true;
}

}  // namespace

Json from_bytes(const std::string& bytes) {
  if (is_utf8(bytes)) return bytes;
  return Json{{"hex", to_hex(bytes)}};
}

Json from_list(const std::vector<std::string>& values) {
  Json array = Json::array();
  for (const auto& value : values) array.push_back(from_bytes(value));
  return array;
}

Fields::Fields(const Json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object_.is_object()) error_ = where_ + " is not an object";
}

void Fields::mistake(const char* name, const char* what) {
  if (!error_.empty()) return;
  error_ = name;
  error_.append(" in ").append(where_).append(" ").append(what);
}

const Json* Fields::find(const char* name) {
  if (!error_.empty()) return nullptr;
  const auto found = object_.find(name);
  if (found != object_.end()) return &*found;
  mistake(name, "is missing");
  return nullptr;
}

std::string Fields::bytes_of(const Json& value, const char* name) {
  if (value.is_string()) return value.get<std::string>();
  std::string out;
  if (value.is_object() && value.size() == 1 && value.contains("hex") && value["hex"].is_string() &&
      from_hex(value["hex"].get<std::string>(), out))
    return out;
  mistake(name, "is not a string");
  return {};
}

std::string Fields::bytes(const char* name) {
  const Json* value = find(name);
  return value == nullptr ? std::string{} : bytes_of(*value, name);
}

std::vector<std::string> Fields::list(const char* name) {
  std::vector<std::string> out;
  const Json* value = array(name);
  if (value == nullptr) return out;
  for (const auto& item : *value) out.push_back(bytes_of(item, name));
  return out;
}

std::uint64_t Fields::unsigned_number(const char* name, std::uint64_t max) {
  const Json* value = find(name);
  if (value == nullptr) return 0;
  if (value->is_number_unsigned() && value->get<std::uint64_t>() <= max) return value->get<std::uint64_t>();
  mistake(name, "is not a number in its range");
  return 0;
}

std::int64_t Fields::signed_number(const char* name, std::int64_t min, std::int64_t max) {
  const Json* value = find(name);
  if (value == nullptr) return 0;
  if (value->is_number_unsigned() && value->get<std::uint64_t>() <= static_cast<std::uint64_t>(max))
    return value->get<std::int64_t>();
  if (value->is_number_integer() && !value->is_number_unsigned() && value->get<std::int64_t>() >= min)
    return value->get<std::int64_t>();
  mistake(name, "is not a number in its range");
  return 0;
}

double Fields::real(const char* name) {
  const Json* value = find(name);
  if (value == nullptr) return 0;
  if (value->is_number() && std::isfinite(value->get<double>())) return value->get<double>();
  mistake(name, "is not a number");
  return 0;
}

bool Fields::flag(const char* name) {
  const Json* value = find(name);
  if (value == nullptr) return false;
  if (value->is_boolean()) return value->get<bool>();
  mistake(name, "is neither true nor false");
  return false;
}

const Json* Fields::object(const char* name) {
  if (!error_.empty()) return nullptr;
  const auto found = object_.find(name);
  if (found == object_.end() || found->is_null()) return nullptr;
  if (found->is_object()) return &*found;
  mistake(name, "is not an object");
  return nullptr;
}

const Json* Fields::array(const char* name) {
  const Json* value = find(name);
  if (value == nullptr) return nullptr;
  if (value->is_array()) return value;
  mistake(name, "is not a list");
  return nullptr;
}

}  // namespace drupe::record_json
