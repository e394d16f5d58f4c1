#include "api/json/value.h"

namespace drupe::api {
namespace {

std::unexpected<Error> wrong(std::string_view name, std::string_view what) {
  return fail(ErrorCode::kInvalidArgument, std::string(name) + " must be " + std::string(what));
}

}  // namespace

const Value* Value::find(std::string_view name) const {
  for (const auto& [key, value] : members)
    if (key == name) return value.type == Type::kNull ? nullptr : &value;
  return nullptr;
}

Result<Value> parse_object(std::string_view body) {
  Value empty;
  empty.type = Value::Type::kObject;
  if (body.find_first_not_of(" \t\r\n") == std::string_view::npos) return empty;
  DRUPE_ASSIGN(Value value, parse_json(body));
  if (value.type == Value::Type::kNull) return empty;
  if (!value.is_object())
    return fail(ErrorCode::kInvalidArgument, "The request's body must be a JSON object");
  return value;
}

Result<std::optional<std::string>> text_field(const Value& object, std::string_view name) {
  const Value* const value = object.find(name);
  if (value == nullptr) return std::nullopt;
  if (value->type != Value::Type::kText) return wrong(name, "a string");
  return value->text;
}

Result<std::optional<bool>> bool_field(const Value& object, std::string_view name) {
  const Value* const value = object.find(name);
  if (value == nullptr) return std::nullopt;
  if (value->type != Value::Type::kBoolean) return wrong(name, "true or false");
  return value->boolean;
}

Result<std::optional<std::int64_t>> integer_field(const Value& object, std::string_view name,
                                                  std::int64_t least, std::int64_t most) {
  const Value* const value = object.find(name);
  if (value == nullptr) return std::nullopt;
  if (value->type != Value::Type::kInteger) return wrong(name, "an integer");
  if (value->integer < least || value->integer > most)
    return fail(ErrorCode::kInvalidArgument, std::string(name) + " must be between " + std::to_string(least) +
                                                 " and " + std::to_string(most));
  return value->integer;
}

Result<std::optional<std::vector<std::string>>> texts_field(const Value& object, std::string_view name) {
  const Value* const value = object.find(name);
  if (value == nullptr) return std::nullopt;
  if (value->type != Value::Type::kArray) return wrong(name, "a list of strings");
  std::vector<std::string> texts;
  for (const Value& item : value->items) {
    if (item.type != Value::Type::kText) return wrong(name, "a list of strings");
    texts.push_back(item.text);
  }
  return texts;
}

Result<std::optional<std::map<std::string, std::string>>> map_field(const Value& object,
                                                                    std::string_view name) {
  const Value* const value = object.find(name);
  if (value == nullptr) return std::nullopt;
  if (!value->is_object()) return wrong(name, "an object of strings");
  std::map<std::string, std::string> map;
  for (const auto& [key, member] : value->members) {
    if (member.type != Value::Type::kText) return wrong(name, "an object of strings");
    map[key] = member.text;
  }
  return map;
}

}  // namespace drupe::api
