// TLS client hellos made for tests.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace drupe::net::testing {

struct HelloOptions {
  std::vector<std::string> names;  ///< Entries of the server name extension; none: no extension.
  bool tls13 = true;
  bool encrypted = false;
  bool early_data = false;
  bool repeat_extension = false;
  std::size_t padding = 0;  ///< Bytes of the padding extension.
};

/// Body of the hello, behind the handshake header.
[[nodiscard]] std::string hello_body(const HelloOptions& options);
/// A handshake message of the type of a client hello.
[[nodiscard]] std::string handshake(const std::string& body, char type = 1);
/// `bytes` in records of at most `size` bytes.
[[nodiscard]] std::string records(const std::string& bytes, std::size_t size = 16384, char type = 22);
/// A hello for `name` in one record.
[[nodiscard]] std::string hello_for(const std::string& name);

}  // namespace drupe::net::testing
