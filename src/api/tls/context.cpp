#include "api/tls/context.h"

#include <openssl/err.h>

namespace drupe::api {
namespace {

constexpr unsigned char kHttp11[] = {8, 'h', 't', 't', 'p', '/', '1', '.', '1'};

std::unexpected<Error> refused(const std::string& what) {
  const char* const reason = ERR_reason_error_string(ERR_get_error());
  ERR_clear_error();
  return fail(ErrorCode::kInvalidArgument, what + ": " + (reason != nullptr ? reason : "unknown"));
}

/// HTTP/1.1 when it is offered; else nothing is agreed on, and HTTP/1.1 is spoken all the same.
int choose_protocol(SSL* /*ssl*/, const unsigned char** out, unsigned char* out_length,
                    const unsigned char* in, unsigned in_length, void* /*argument*/) {
  unsigned char* chosen = nullptr;
  if (SSL_select_next_proto(&chosen, out_length, kHttp11, sizeof kHttp11, in, in_length) !=
      OPENSSL_NPN_NEGOTIATED)
    return SSL_TLSEXT_ERR_NOACK;
  *out = chosen;
  return SSL_TLSEXT_ERR_OK;
}

}  // namespace

Result<TlsContext> make_context(const TlsFiles& files) {
  ERR_clear_error();
  TlsContext context(SSL_CTX_new(TLS_server_method()));
  if (!context) return refused("TLS cannot be used here");
  SSL_CTX_set_min_proto_version(context.get(), TLS1_2_VERSION);
  SSL_CTX_set_options(context.get(),
                      SSL_OP_NO_RENEGOTIATION | SSL_OP_NO_COMPRESSION | SSL_OP_CIPHER_SERVER_PREFERENCE);
  SSL_CTX_set_mode(context.get(), SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER |
                                      SSL_MODE_RELEASE_BUFFERS);
  SSL_CTX_set_alpn_select_cb(context.get(), choose_protocol, nullptr);
  // A key that asks for a pass phrase would ask on the terminal.
  SSL_CTX_set_default_passwd_cb(context.get(), [](char*, int, int, void*) { return 0; });
  if (SSL_CTX_use_certificate_chain_file(context.get(), files.certificate.c_str()) != 1)
    return refused("The certificate " + files.certificate + " cannot be used");
  if (SSL_CTX_use_PrivateKey_file(context.get(), files.key.c_str(), SSL_FILETYPE_PEM) != 1)
    return refused("The key " + files.key + " cannot be used");
  if (SSL_CTX_check_private_key(context.get()) != 1)
    return refused("The key " + files.key + " is not that of " + files.certificate);
  return context;
}

}  // namespace drupe::api
