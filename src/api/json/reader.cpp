// parse_json(), over nlohmann's SAX parser: nothing is built before it has been counted.
#include <limits>
#include <unordered_set>

#include <nlohmann/json.hpp>

#include "api/json/value.h"

namespace drupe::api {
namespace {

using Json = nlohmann::json;

class Builder : public nlohmann::json_sax<Json> {
 public:
  explicit Builder(const JsonLimits& limits) : limits_(limits) {}

  bool null() override { return add({}); }
  bool boolean(bool value) override {
    Value one;
    one.type = Value::Type::kBoolean;
    one.boolean = value;
    return add(std::move(one));
  }
  bool number_integer(number_integer_t value) override {
    Value one;
    one.type = Value::Type::kInteger;
    one.integer = value;
    return add(std::move(one));
  }
  bool number_unsigned(number_unsigned_t value) override {
    if (value <= static_cast<number_unsigned_t>(std::numeric_limits<std::int64_t>::max()))
      return number_integer(static_cast<number_integer_t>(value));
    return number_float(static_cast<double>(value), {});
  }
  bool number_float(number_float_t value, const string_t& /*text*/) override {
    Value one;
    one.type = Value::Type::kReal;
    one.real = value;
    return add(std::move(one));
  }
  bool string(string_t& value) override {
    Value one;
    one.type = Value::Type::kText;
    one.text = std::move(value);
    return add(std::move(one));
  }
  bool binary(binary_t& /*value*/) override { return false; }
  bool start_object(std::size_t /*count*/) override { return open(Value::Type::kObject); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t /*count*/) override { return open(Value::Type::kArray); }
  bool end_array() override { return close(); }
  bool key(string_t& name) override {
    if (!names_.back().insert(name).second)
      return refuse("The name '" + name.substr(0, 64) + "' stands in an object twice");
    stack_.back()->members.push_back({std::move(name), Value()});
    return true;
  }
  bool parse_error(std::size_t place, const std::string& /*token*/,
                   const nlohmann::detail::exception& /*why*/) override {
    return refuse("The request's body is not JSON: the mistake is at byte " + std::to_string(place));
  }

  Value take() { return std::move(root_); }
  [[nodiscard]] const std::string& problem() const { return problem_; }

 private:
  bool refuse(std::string why) {
    problem_ = std::move(why);
    return false;
  }
  Value* place() {
    if (stack_.empty()) return &root_;
    Value* const parent = stack_.back();
    return parent->is_object() ? &parent->members.back().value : &parent->items.emplace_back();
  }
  bool add(Value value) {
    if (++values_ > limits_.values) return refuse("The request's JSON has too many values");
    *place() = std::move(value);
    return true;
  }
  // Elements of a parent move only when something is added to it, and then none of them is open.
  bool open(Value::Type type) {
    if (++values_ > limits_.values) return refuse("The request's JSON has too many values");
    if (stack_.size() == limits_.depth) return refuse("The request's JSON is nested too deeply");
    Value* const value = place();
    value->type = type;
    stack_.push_back(value);
    names_.emplace_back();
    return true;
  }
  bool close() {
    stack_.pop_back();
    names_.pop_back();
    return true;
  }

  const JsonLimits limits_;
  Value root_;
  std::vector<Value*> stack_;
  std::vector<std::unordered_set<std::string>> names_;
  std::size_t values_ = 0;
  std::string problem_;
};

}  // namespace

Result<Value> parse_json(std::string_view text, const JsonLimits& limits) {
  Builder builder(limits);
  if (!Json::sax_parse(text, &builder))
    return fail(ErrorCode::kInvalidArgument,
                builder.problem().empty() ? "The request's body is not JSON" : builder.problem());
  return builder.take();
}

}  // namespace drupe::api
