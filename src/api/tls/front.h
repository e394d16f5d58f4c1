// TLS in front of the HTTP server: each connection is decrypted into a socket pair, so that nothing behind it
// knows of TLS. The only user of libssl.
#pragma once

#include <memory>
#include <string>

#include "base/result.h"
#include "base/unique_fd.h"

namespace drupe::api {

struct TlsFiles {
  std::string certificate;  ///< PEM: the certificate, then those up to the root.
  std::string key;          ///< PEM.
};

/// Callable from any thread. TLS 1.2 and 1.3. One thread of its own does all of it; what waits for either
/// side of a connection is bounded.
class TlsFront {
 public:
  virtual ~TlsFront() = default;
  /// kInvalidArgument for files that are no certificate, or a key that is not its own. They are read again
  /// when they change.
  static Result<std::unique_ptr<TlsFront>> start(TlsFiles files);

  /// Takes an accepted connection; gives where its bytes come and go in the clear.
  virtual Result<UniqueFd> adopt(UniqueFd tcp) = 0;
  /// Reads the files again, for connections to come; after an error the old ones stay.
  virtual Status reload() = 0;
};

}  // namespace drupe::api
