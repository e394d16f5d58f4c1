// A client of OCI registries (distribution-spec) for one repository.
#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/result.h"
#include "image/auth.h"
#include "image/http.h"
#include "image/manifest.h"
#include "image/progress.h"
#include "image/reference.h"

namespace drupe {

struct RegistryOptions {
  bool insecure = false;  ///< TLS without verification, and plain HTTP where there is no TLS.
  CancelFlag cancel = nullptr;
  std::chrono::milliseconds retry_delay{500};  ///< Before the first new try; doubled for each further one.
};

struct FetchedManifest {
  std::string bytes, media_type;
  std::string digest;  ///< SHA-256 of the bytes, 64 hexadecimal digits.
};

/// Answers are bounded and verified. Credentials go only to the registry itself and to the token service that
/// it names, never along with a redirect. Unless the registry itself has an address that is not public,
/// neither redirects nor token services may lead to one. One thread at a time; clone() serves further
/// threads.
class Registry {
 public:
  Registry(const Reference& reference, const RegistryOptions& options)
      : reference_(reference), options_(options) {}

  /// `selector`: a tag or "sha256:...", which the answer's digest is checked against. kNotFound, kPermission
  /// (a login is missing or refused), kUnavailable, kIntegrity.
  Result<FetchedManifest> manifest(const std::string& selector);
  /// A blob of at most `limit` bytes.
  Result<std::string> blob(const Descriptor& blob, std::size_t limit);
  /// Fetches a blob into the regular file `fd`, continuing after what is there already, through broken
  /// connections, and checks size and digest. After kIntegrity the file is empty. `on_bytes` is told how much
  /// is there.
  Status download(const Descriptor& blob, int fd, const std::function<void(std::uint64_t there)>& on_bytes);

  /// Another client of the same repository with what this one has learned.
  [[nodiscard]] Registry clone(const RegistryOptions& options) const;
  [[nodiscard]] const RegistryOptions& options() const { return options_; }

 private:
  struct Attempt;
  Status ready();
  /// GET of `path` at the registry, with login, redirects and retries.
  Result<HttpResponse> get(const std::string& path, const HttpRequest& pattern);
  Result<HttpResponse> get_once(const std::string& path, const HttpRequest& pattern);
  Result<HttpResponse> follow(const std::string& url, HttpResponse response, const HttpRequest& pattern);
  Result<HttpResponse> first_contact(const std::string& path, const HttpRequest& pattern);
  Status log_in(const HttpResponse& refusal);
  Status fetch_token(const Challenge& challenge);
  Status pause(int tries, const std::string& retry_after) const;
  [[nodiscard]] bool public_only() const;
  [[nodiscard]] Error refusal(const HttpResponse& response, const std::string& what) const;
  Status download_once(Attempt& attempt);

  Reference reference_;
  RegistryOptions options_;
  std::unique_ptr<HttpClient> http_;
  std::string base_;           ///< "https://host:port", once it is known.
  std::string authorization_;  ///< Header value; empty: none.
  bool private_registry_ = false;
};

}  // namespace drupe
