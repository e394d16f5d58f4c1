#include "image/curl.h"

#include <optional>
#include <string>

#include <dlfcn.h>

namespace drupe {
namespace {

constexpr const char* kLibrary = "libcurl.so.4";

Result<Curl> load() {
  void* const library = ::dlopen(kLibrary, RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr)
    return fail(
        ErrorCode::kUnsupported,
        std::string("Images cannot be pulled, because the library libcurl is missing: ") + ::dlerror(),
        "Install it, for example with: apt-get install libcurl4");
  Curl curl;
  bool complete = true;
  const auto get = [&](auto& call, const char* name) {
    call = reinterpret_cast<std::remove_reference_t<decltype(call)>>(::dlsym(library, name));
    complete = complete && call != nullptr;
  };
  get(curl.global_init, "curl_global_init");
  get(curl.easy_init, "curl_easy_init");
  get(curl.easy_cleanup, "curl_easy_cleanup");
  get(curl.easy_reset, "curl_easy_reset");
  get(curl.easy_setopt, "curl_easy_setopt");
  get(curl.easy_getinfo, "curl_easy_getinfo");
  get(curl.easy_perform, "curl_easy_perform");
  get(curl.easy_strerror, "curl_easy_strerror");
  get(curl.slist_append, "curl_slist_append");
  get(curl.slist_free_all, "curl_slist_free_all");
  if (!complete)
    return fail(ErrorCode::kUnsupported, "The library libcurl lacks a call that is needed",
                "Install libcurl 7.85 or later.");
  if (curl.global_init(CURL_GLOBAL_DEFAULT) != CURLE_OK)
    return fail(ErrorCode::kHost, "Starting libcurl failed");
  return curl;
}

}  // namespace

Result<const Curl*> load_curl() {
  static const Result<Curl> curl = load();
  if (!curl) return std::unexpected(curl.error());
  return &*curl;
}

}  // namespace drupe
