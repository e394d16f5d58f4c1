// What a client's JSON says, bounded; and reading fields of it with one sentence for every mistake.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace drupe::api {

struct Member;

/// A plain value. Objects are small: they are looked through.
struct Value {
  enum class Type : std::uint8_t { kNull, kBoolean, kInteger, kReal, kText, kArray, kObject };

  Type type = Type::kNull;
  bool boolean = false;
  std::int64_t integer = 0;
  double real = 0;  ///< kReal, and integers that do not fit.
  std::string text;
  std::vector<Value> items;     ///< kArray.
  std::vector<Member> members;  ///< kObject, no name twice.

  [[nodiscard]] bool is_object() const { return type == Type::kObject; }
  /// The member, unless it is absent or null: both mean "not given".
  [[nodiscard]] const Value* find(std::string_view name) const;
};

struct Member {
  std::string name;
  Value value;
};

struct JsonLimits {
  std::size_t depth = 32;
  std::size_t values = 100'000;
};
/// kInvalidArgument: not JSON (RFC 8259), not UTF-8, deeper or with more values than allowed, or an object
/// with one name twice. The caller bounds the length.
Result<Value> parse_json(std::string_view text, const JsonLimits& limits = {});
/// A body that may be missing: empty and `null` are {}. Anything but an object is kInvalidArgument.
Result<Value> parse_object(std::string_view body);

// Fields of `object`. Absent and null give nothing; another type, or a number out of range, is
// kInvalidArgument and names the field.
Result<std::optional<std::string>> text_field(const Value& object, std::string_view name);
Result<std::optional<bool>> bool_field(const Value& object, std::string_view name);
Result<std::optional<std::int64_t>> integer_field(const Value& object, std::string_view name,
                                                  std::int64_t least, std::int64_t most);
Result<std::optional<std::vector<std::string>>> texts_field(const Value& object, std::string_view name);
Result<std::optional<std::map<std::string, std::string>>> map_field(const Value& object,
                                                                    std::string_view name);

}  // namespace drupe::api
