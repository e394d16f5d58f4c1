// The TLS client hello (RFC 8446, 4.1.2): which server does a client ask for?
#pragma once

#include <optional>
#include <string>

#include "base/bytes.h"
#include "base/result.h"

namespace drupe::net {

struct ClientHello {
  std::optional<std::string> name;  ///< Server name as sent (RFC 6066, 3): exactly one host_name.
  /// There is an encrypted hello (RFC 9849, extension 0xfe0d) or its forerunner (0xffce). A client that has
  /// no key for the server sends a fake one ("GREASE", RFC 9849, 6.2) that is made to look the same to
  /// everyone but the server, so the two cannot be told apart here.
  bool encrypted = false;
  bool offers_tls13 = false;  ///< A second hello may follow the server's request to retry.
  bool early_data = false;    ///< Encrypted records may come before that second hello.
};

/// Parses the body of a client hello (behind the handshake header of four bytes). kGuest: cut short, trailing
/// bytes, an extension twice, several names.
Result<ClientHello> parse_client_hello(ByteView body);

}  // namespace drupe::net
