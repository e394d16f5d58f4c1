// A certificate and its key as libssl has them.
#pragma once

#include <memory>

#include <openssl/ssl.h>

#include "api/tls/front.h"
#include "base/result.h"

namespace drupe::api {

struct ContextCloser {
  void operator()(SSL_CTX* context) const { SSL_CTX_free(context); }
};
using TlsContext = std::unique_ptr<SSL_CTX, ContextCloser>;

Result<TlsContext> make_context(const TlsFiles& files);

}  // namespace drupe::api
