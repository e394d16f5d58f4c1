#include "image/npm_layer.h"

#include <array>
#include <vector>

#include <openssl/evp.h>

#include "base/tar_decode.h"
#include "image/decompress.h"
#include "image/http.h"
#include "image/source.h"

namespace drupe {
namespace {

constexpr std::size_t kMaxPackage = std::size_t{64} << 20U;
constexpr std::uint64_t kMaxUnpacked = std::uint64_t{256} << 20U;
constexpr int kMaxRedirects = 5;
constexpr std::string_view kHome = "usr/lib/node_modules/npm";

/// Makes layer entries of the package's: "package/lib/x" becomes usr/lib/node_modules/npm/lib/x.
class Repacker {
 public:
  Status entry(const TarEntry& entry) {
    keep_ = entry.type == 'f';
    if (!keep_) return {};  // Packages have nothing else; folders are made with their files.
    const auto slash = entry.name.find('/');
    if (slash == std::string::npos || entry.sparse)
      return fail(ErrorCode::kIntegrity, "The npm package has an odd entry");
    newest_ = std::max(newest_, entry.mtime_ns);
    layer_ += encode_tar_entry({.name = std::string(kHome) + entry.name.substr(slash),
                                .mode = (entry.mode & 0111U) != 0 ? 0755U : 0644U,
                                .size = entry.size,
                                .mtime_ns = entry.mtime_ns});
    padding_ = tar_padding(entry.size);
    return {};
  }
  Status data(ByteView bytes) {
    if (keep_) layer_ += as_text(bytes);
    return {};
  }
  Status end() {
    if (keep_) layer_.append(padding_, '\0');
    return {};
  }
  std::string take() {
    for (const std::string name : {"npm", "npx"})
      layer_ += encode_tar_entry({.name = "usr/bin/" + name,
                                  .type = 'l',
                                  .mode = 0777,
                                  .mtime_ns = newest_,
                                  .link = "../lib/node_modules/npm/bin/" + name + "-cli.js"});
    return std::move(layer_);
  }

 private:
  std::string layer_;
  bool keep_ = false;
  std::size_t padding_ = 0;
  std::int64_t newest_ = 0;
};

}  // namespace

bool has_integrity(std::string_view bytes, std::string_view integrity) {
  std::array<unsigned char, EVP_MAX_MD_SIZE> digest{};
  unsigned int size = 0;
  if (EVP_Digest(bytes.data(), bytes.size(), digest.data(), &size, EVP_sha512(), nullptr) != 1) return false;
  std::vector<unsigned char> text(size / 3 * 4 + 5);
  const int length = EVP_EncodeBlock(text.data(), digest.data(), static_cast<int>(size));
  return integrity == "sha512-" + std::string(reinterpret_cast<const char*>(text.data()),
                                              static_cast<std::size_t>(length));
}

Result<std::string> fetch_npm(const std::string& registry, const std::string& version,
                              const std::string& integrity, CancelFlag cancel) {
  DRUPE_ASSIGN(auto client, HttpClient::open());
  HttpRequest request;
  request.url = registry + "/npm/-/npm-" + version + ".tgz";
  request.body_limit = kMaxPackage;
  request.limit = std::chrono::seconds(300);
  request.cancel = cancel;
  std::string package;
  request.on_body = [&package](int /*status*/, ByteView bytes) -> Status {
    if (package.size() + bytes.size() > kMaxPackage)
      return fail(ErrorCode::kLimit, "The npm package is too large");
    package += as_text(bytes);
    return {};
  };
  for (int redirects = 0; redirects <= kMaxRedirects; ++redirects) {
    DRUPE_ASSIGN(const HttpResponse response, client->perform(request));
    if (response.status == 200) {
      if (!has_integrity(package, integrity))
        return fail(ErrorCode::kIntegrity,
                    "The npm package from " + registry + " is not the one that the recipe names");
      return package;
    }
    if (response.status / 100 != 3)
      return fail(ErrorCode::kUnavailable,
                  "Fetching " + request.url + " failed with HTTP status " + std::to_string(response.status),
                  "Name another registry in DRUPE_NPM_REGISTRY.");
    request.url = resolve_url(request.url, response.header("location"));
  }
  return fail(ErrorCode::kUnavailable, "Fetching npm was redirected too often");
}

Result<std::string> npm_layer(std::string_view tgz) {
  MemorySource packed(tgz);
  DRUPE_ASSIGN(const auto plain, decompress(packed, {.total = kMaxUnpacked}));
  Repacker repacker;
  TarDecoder decoder({.on_entry = [&](const TarEntry& entry) { return repacker.entry(entry); },
                      .on_data = [&](std::uint64_t, ByteView bytes) { return repacker.data(bytes); },
                      .on_entry_end = [&] { return repacker.end(); }});
  std::vector<std::uint8_t> buffer(std::size_t{64} << 10U);
  while (true) {
    DRUPE_ASSIGN(const std::size_t got, plain->read(buffer));
    if (got == 0) break;
    DRUPE_TRY(decoder.feed(ByteView(buffer).first(got)));
  }
  DRUPE_TRY(decoder.finish());
  return repacker.take();
}

}  // namespace drupe
