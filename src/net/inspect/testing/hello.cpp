#include "net/inspect/testing/hello.h"

#include <algorithm>

namespace drupe::net::testing {
namespace {

std::string number(std::size_t value, int size) {
  std::string out;
  for (int i = size - 1; i >= 0; --i) out += static_cast<char>(value >> (8 * i) & 0xff);
  return out;
}

std::string vector(const std::string& bytes, int length_size) {
  return number(bytes.size(), length_size) + bytes;
}

std::string extension(std::size_t type, const std::string& data) {
  return number(type, 2) + vector(data, 2);
}

}  // namespace

std::string hello_body(const HelloOptions& options) {
  std::string extensions;
  if (!options.names.empty()) {
    std::string list;
    for (const std::string& name : options.names) list += number(0, 1) + vector(name, 2);
    extensions += extension(0, vector(list, 2));
  }
  if (options.tls13)
    extensions += extension(43, vector(number(0x0a0a, 2) + number(0x0304, 2) + number(0x0303, 2), 1));
  if (options.early_data) extensions += extension(42, {});
  if (options.encrypted) extensions += extension(0xfe0d, std::string(186, 'e'));
  if (options.padding != 0) extensions += extension(21, std::string(options.padding, '\0'));
  extensions += extension(10, vector(number(29, 2), 2));
  if (options.repeat_extension) extensions += extension(10, vector(number(29, 2), 2));
  return number(0x0303, 2) + std::string(32, 'r') + vector(std::string(32, 's'), 1) +
         vector(number(0x1301, 2), 2) + vector(number(0, 1), 1) + vector(extensions, 2);
}

std::string handshake(const std::string& body, char type) {
  return type + vector(body, 3);
}

std::string records(const std::string& bytes, std::size_t size, char type) {
  std::string out;
  for (std::size_t at = 0; at < bytes.size(); at += size)
    out += type + number(0x0301, 2) + vector(bytes.substr(at, size), 2);
  return out;
}

std::string hello_for(const std::string& name) {
  HelloOptions options;
  options.names = {name};
  return records(handshake(hello_body(options)));
}

}  // namespace drupe::net::testing
