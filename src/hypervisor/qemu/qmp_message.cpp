#include "hypervisor/qemu/qmp_message.h"

#include <vector>

#include <nlohmann/json.hpp>

namespace drupe {
namespace {

using Json = nlohmann::json;

constexpr std::size_t kMaxDepth = 8;
constexpr std::size_t kMaxFields = 256;

// Collects scalars by path without building a document; every callback that returns false ends the parse.
class Flattener {
 public:
  explicit Flattener(std::map<std::string, std::string, std::less<>>& fields) : fields_(fields) {}

  bool null() { return put(""); }
  bool boolean(bool value) { return put(value ? "true" : "false"); }
  bool number_integer(Json::number_integer_t value) { return put(std::to_string(value)); }
  bool number_unsigned(Json::number_unsigned_t value) { return put(std::to_string(value)); }
  bool number_float(Json::number_float_t, const Json::string_t& text) { return put(text); }
  bool string(Json::string_t& value) { return put(value); }
  bool binary(Json::binary_t&) { return false; }
  bool start_object(std::size_t) { return descend(false); }
  bool end_object() { return ascend(); }
  bool start_array(std::size_t) { return descend(true); }
  bool end_array() { return ascend(); }
  bool key(Json::string_t& name) {
    levels_.back().name = name;
    return true;
  }
  bool parse_error(std::size_t, const std::string&, const nlohmann::detail::exception&) { return false; }

  [[nodiscard]] bool object_seen() const { return object_seen_; }

 private:
  struct Level {
    bool array = false;
    std::size_t index = 0;
    std::string name;
  };

  bool descend(bool array) {
    if (levels_.empty() && array) return false;
    object_seen_ = true;
    if (levels_.size() == kMaxDepth) return false;
    note_array_element();
    // Present without a scalar in it: {"return": {}} must still be seen.
    if (levels_.size() == 1 && !put_at(path(), "")) return false;
    levels_.push_back(Level{array, 0, {}});
    return true;
  }
  bool ascend() {
    levels_.pop_back();
    return true;
  }
  void note_array_element() {
    if (!levels_.empty() && levels_.back().array)
      levels_.back().name = std::to_string(levels_.back().index++);
  }
  [[nodiscard]] std::string path() const {
    std::string out;
    for (const auto& level : levels_) {
      if (!out.empty()) out += '.';
      out += level.name;
    }
    return out;
  }
  bool put(std::string text) {
    if (levels_.empty()) return false;
    note_array_element();
    return put_at(path(), std::move(text));
  }
  bool put_at(std::string where, std::string text) {
    if (fields_.size() >= kMaxFields) return false;
    fields_.insert_or_assign(std::move(where), std::move(text));
    return true;
  }

  std::map<std::string, std::string, std::less<>>& fields_;
  std::vector<Level> levels_;
  bool object_seen_ = false;
};

bool parse(std::string_view line, Flattener& flattener) {
  try {
    return Json::sax_parse(line.begin(), line.end(), &flattener) && flattener.object_seen();
  } catch (const std::exception&) {
    return false;
  }
}

}  // namespace

std::string_view QmpMessage::field(std::string_view path) const {
  const auto found = fields.find(path);
  return found == fields.end() ? std::string_view() : std::string_view(found->second);
}

Result<QmpMessage> parse_qmp(std::string_view line) {
  QmpMessage message;
  Flattener flattener(message.fields);
  if (line.size() > kMaxQmpLine || !parse(line, flattener))
    return fail(ErrorCode::kGuest, "The hypervisor sent a malformed control message");
  message.id = message.field("id");
  if (message.fields.contains("QMP")) {
    message.kind = QmpMessage::Kind::kGreeting;
  } else if (message.fields.contains("error")) {
    message.kind = QmpMessage::Kind::kError;
    message.error = message.field("error.desc");
  } else if (message.fields.contains("return")) {
    message.kind = QmpMessage::Kind::kReturn;
  } else if (message.fields.contains("event")) {
    message.kind = QmpMessage::Kind::kEvent;
    message.event = message.field("event");
  } else {
    return fail(ErrorCode::kGuest, "The hypervisor sent a control message of an unknown kind");
  }
  return message;
}

std::string encode_qmp(std::string_view command, std::string_view arguments, std::string_view id) {
  std::string out = "{\"execute\":\"";
  out.append(command);
  out += '"';
  if (!arguments.empty()) {
    out += ",\"arguments\":";
    out.append(arguments);
  }
  out += ",\"id\":\"";
  out.append(id);
  out += "\"}\n";
  return out;
}

}  // namespace drupe
