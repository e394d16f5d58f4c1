#include "cli/json_writer.h"

#include <array>
#include <cstdio>

#include "cli/values.h"

namespace drupe::cli {
namespace {

void append_text(std::string& out, std::string_view value) {
  const std::string safe = is_utf8(value) ? std::string() : printable(value);
  if (!safe.empty()) value = safe;
  for (const char c : value) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7F) {
      std::array<char, 8> escaped{};
      std::snprintf(escaped.data(), escaped.size(), "\\u%04x",
                    static_cast<unsigned>(static_cast<unsigned char>(c)));
      out += escaped.data();
    } else {
      out += c;
    }
  }
}

}  // namespace

JsonWriter::JsonWriter() : drupe::JsonWriter(append_text) {}

}  // namespace drupe::cli
