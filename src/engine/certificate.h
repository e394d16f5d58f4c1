// Just enough of X.509 to put a certificate where OpenSSL looks for it. Nothing is verified.
#pragma once

#include <string_view>
#include <vector>

#include "base/result.h"
#include "protocol/trust.h"

namespace drupe {

/// The certificates among PEM text, in their order, each once. Everything else, private keys among it, is
/// passed over. kInvalidArgument: a CERTIFICATE block that holds none.
Result<std::vector<TrustedAuthority>> read_certificates(std::string_view pem);

}  // namespace drupe
