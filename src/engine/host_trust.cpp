#include "engine/host_trust.h"

#include <algorithm>
#include <set>

#include <fcntl.h>

#include "base/files.h"
#include "engine/certificate.h"
#include "net/policy/preset_clients.h"

namespace drupe {
namespace {

/// Debian, Alpine, Arch; Fedora and its kin; openSUSE; OpenSSL as its authors build it.
constexpr const char* kBundles[] = {"/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt",
                                    "/etc/pki/ca-trust/extracted/pem/tls-ca-bundle.pem",
                                    "/etc/ssl/ca-bundle.pem", "/etc/ssl/cert.pem"};
constexpr const char* kGuestStore = "/etc/ssl/certs/ca-certificates.crt";

/// "9482e63a.0": what OpenSSL reads of a directory.
bool is_hash_link(std::string_view name) {
  const auto digit = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
  return name.size() >= 10 && name[8] == '.' && std::ranges::all_of(name.substr(0, 8), digit) &&
         std::ranges::all_of(name.substr(9), [](char c) { return c >= '0' && c <= '9'; });
}

class Collector {
 public:
  explicit Collector(const net::PresetSource& source) : source_(source) {}

  /// A file, or a directory with links by hash, that `origin` names.
  Status take(const std::string& path, const std::string& origin) {
    if (!paths_.insert(path).second) return {};
    const auto text = source_.file(path);
    if (!text) {
      if (take_directory(path)) return {};
      return fail(ErrorCode::kNotFound,
                  origin + " names the certificate authorities " + path +
                      ", which cannot be read or have more than 4 MiB",
                  "Correct " + origin + ", or leave --host-ca away.");
    }
    auto found = read_certificates(*text);
    if (!found) return std::unexpected(std::move(found).error().in(path + " cannot be taken over"));
    if (found->empty())
      return fail(ErrorCode::kInvalidArgument, path + ", which " + origin + " names, holds no certificate",
                  "Correct " + origin + ", or leave --host-ca away.");
    add(*found);
    return {};
  }

  /// What is no certificate there is passed over, as OpenSSL does. False when there is none at all.
  bool take_directory(const std::string& path) {
    bool any = false;
    for (const std::string& name : source_.directory(path)) {
      if (!is_hash_link(name)) continue;
      const auto text = source_.file(path + "/" + name);
      const auto found = text ? read_certificates(*text) : Result<std::vector<TrustedAuthority>>();
      if (!found || found->empty()) continue;
      add(*found);
      any = true;
    }
    return any;
  }

  Result<TrustBundle> finish() {
    if (bundle_.authorities.empty())
      return fail(ErrorCode::kNotFound,
                  "This host has no store of certificate authorities to give to a sandbox",
                  "Install ca-certificates, name a file in SSL_CERT_FILE, or leave --host-ca away.");
    if (bundle_.authorities.size() > kMaxAuthorities || bundle_.encode().size() > kMaxTrustBundle)
      return fail(ErrorCode::kLimit,
                  "This host trusts more than 2048 certificate authorities, or 4 MiB of them",
                  "Leave --host-ca away.");
    return std::move(bundle_);
  }

 private:
  void add(const std::vector<TrustedAuthority>& found) {
    for (const auto& one : found)
      if (ids_.insert(one.id).second) bundle_.authorities.push_back(one);
  }

  const net::PresetSource& source_;
  std::set<std::string> paths_, ids_;
  TrustBundle bundle_;
};

std::string variable(const net::PresetSource& source, const char* name) {
  return source.variable(name).value_or(std::string());
}

}  // namespace

Result<TrustBundle> host_trust(const net::PresetSource& source) {
  Collector collector(source);
  if (const std::string own = variable(source, "SSL_CERT_FILE"); !own.empty()) {
    DRUPE_TRY(collector.take(own, "SSL_CERT_FILE"));
  } else {
    const auto* const found =
        std::ranges::find_if(kBundles, [&](const char* path) { return source.file(path).has_value(); });
    if (found != std::end(kBundles)) DRUPE_TRY(collector.take(*found, "this host's distribution"));
  }
  const std::string directories = variable(source, "SSL_CERT_DIR");
  for (std::size_t begin = 0; begin < directories.size();) {
    const std::size_t end = std::min(directories.find(':', begin), directories.size());
    collector.take_directory(directories.substr(begin, end - begin));
    begin = end + 1;
  }
  for (const char* name : {"NODE_EXTRA_CA_CERTS", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "GIT_SSL_CAINFO"})
    if (const std::string path = variable(source, name); !path.empty()) DRUPE_TRY(collector.take(path, name));
  if (const std::string path = net::pip_authorities(source); !path.empty())
    DRUPE_TRY(collector.take(path, "pip's setting 'cert'"));
  if (const std::string path = net::npm_authorities(source); !path.empty())
    DRUPE_TRY(collector.take(path, "npm's setting 'cafile'"));
  return collector.finish();
}

net::PresetSource host_trust_source() {
  net::PresetSource source = net::host_preset_source();
  source.file = [](const std::string& path) -> std::optional<std::string> {
    auto content = read_file(AT_FDCWD, path, kMaxTrustBundle);
    if (!content) return std::nullopt;
    return *std::move(content);
  };
  return source;
}

std::vector<std::string> trust_variables() {
  const std::string store = kGuestStore;
  return {"SSL_CERT_FILE=" + store, "REQUESTS_CA_BUNDLE=" + store, "NODE_EXTRA_CA_CERTS=" + store};
}

}  // namespace drupe
