// Bytes both ways between a client's connection and a port of a guest.
#pragma once

#include <cstdint>
#include <string>

#include "api/http/exchange.h"
#include "api/service/sandboxes.h"

namespace drupe::api {

/// A connection to 127.0.0.1:port in the guest.
class GuestPort {
 public:
  /// kUnavailable when nothing listens there.
  static Result<std::unique_ptr<GuestPort>> open(Sandboxes::Access& access, std::uint16_t port);
  virtual ~GuestPort() = default;
  /// Sends `first` to the guest, then passes on what either side sends, to the end of both; one side's end is
  /// passed on, too. `early`: what the client has sent already, behind `first`. kUnavailable when the guest's
  /// side failed before a byte came of it: then the client was told nothing.
  virtual Status pump(int client_fd, std::string first, std::string early) = 0;
};

}  // namespace drupe::api
