// The certificate authorities that this host's clients trust, for guests that are to trust them too.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "net/policy/presets.h"
#include "protocol/trust.h"

namespace drupe {

/// Each authority once:
/// * $SSL_CERT_FILE, else the first bundle of those that Linux distributions have;
/// * links by hash in the directories of $SSL_CERT_DIR;
/// * what single clients are told to use: $NODE_EXTRA_CA_CERTS, $REQUESTS_CA_BUNDLE, $CURL_CA_BUNDLE,
///   $GIT_SSL_CAINFO, pip's `cert`, npm's `cafile`.
/// Only certificates are taken. kNotFound: no store at all, or one that is named cannot be read or is too
/// large; kInvalidArgument: it holds no certificate, or something that is none; kLimit: too many.
Result<TrustBundle> host_trust(const net::PresetSource& source);

/// This process's environment and files, of at most kMaxTrustBundle bytes.
[[nodiscard]] net::PresetSource host_trust_source();

/// "KEY=value" for clients that read none of the distribution's files: they name the guest's own store, which
/// the agent has completed (agent/tasks_trust.cpp).
[[nodiscard]] std::vector<std::string> trust_variables();

}  // namespace drupe
