// JSON pieces of a record. Only for .cpp files: the JSON library is heavy.
#pragma once

#include <string>
#include <vector>

#include <nlohmann/json.hpp>

#include "base/result.h"

namespace drupe::record_json {

using Json = nlohmann::ordered_json;

/// A JSON string, or {"hex": "..."} where the bytes are not UTF-8.
[[nodiscard]] Json from_bytes(const std::string& bytes);
[[nodiscard]] Json from_list(const std::vector<std::string>& values);

/// Reads members of one object. After the first mistake error() is set and every later read gives an empty
/// value.
class Fields {
 public:
  Fields(const Json& object, std::string where);

  std::string bytes(const char* name);
  std::vector<std::string> list(const char* name);
  std::uint64_t unsigned_number(const char* name, std::uint64_t max);
  std::int64_t signed_number(const char* name, std::int64_t min, std::int64_t max);
  double real(const char* name);
  bool flag(const char* name);
  /// Null or absent: nullptr.
  const Json* object(const char* name);
  const Json* array(const char* name);

  /// A string that stands by itself (a member of an array).
  std::string bytes_of(const Json& value, const char* name);
  void mistake(const char* name, const char* what);
  [[nodiscard]] const std::string& error() const { return error_; }

 private:
  const Json* find(const char* name);
  const Json& object_;
  std::string where_;
  std::string error_;
};

}  // namespace drupe::record_json
