// libcurl, loaded when the first request is made: linked, it and the libraries behind it would cost every
// start of the program some fifteen milliseconds.
#pragma once

#include <curl/curl.h>

#include "base/result.h"

namespace drupe {

/// The calls that are used, by their names without "curl_".
struct Curl {
  decltype(&curl_global_init) global_init = nullptr;
  decltype(&curl_easy_init) easy_init = nullptr;
  decltype(&curl_easy_cleanup) easy_cleanup = nullptr;
  decltype(&curl_easy_reset) easy_reset = nullptr;
  decltype(&curl_easy_setopt) easy_setopt = nullptr;
  decltype(&curl_easy_getinfo) easy_getinfo = nullptr;
  decltype(&curl_easy_perform) easy_perform = nullptr;
  decltype(&curl_easy_strerror) easy_strerror = nullptr;
  decltype(&curl_slist_append) slist_append = nullptr;
  decltype(&curl_slist_free_all) slist_free_all = nullptr;
};

/// Loads and initializes it once for the process; any thread. Never unloaded.
Result<const Curl*> load_curl();

}  // namespace drupe
