// JSend envelopes, and errors as clients read them.
#pragma once

#include <expected>
#include <string>
#include <string_view>

#include "api/http/message.h"
#include "base/result.h"

namespace drupe::api {

struct ApiError {
  int status = 500;
  std::string message;
  std::string code;               ///< Stable lower-case word.
  std::string field = "message";  ///< Name that the sentence stands under.
  int retry_after_s = 0;          ///< 0: none.
};

template <class T>
using Answer = std::expected<T, ApiError>;

[[nodiscard]] std::unexpected<ApiError> refuse(int status, std::string code, std::string message);
/// What an engine's or the service's error is to a client. Next steps are left out: they speak of commands.
[[nodiscard]] ApiError to_api(const Error& error);
/// Of a file operation in the guest: decided by its errno.
[[nodiscard]] ApiError file_error(const Error& error);

/// {"status":"success","data":...} with 200.
[[nodiscard]] Response success(std::string_view data);
[[nodiscard]] Response failure(const ApiError& error);

}  // namespace drupe::api

/// Like DRUPE_TRY and DRUPE_ASSIGN, in functions that return an Answer.
#define API_TRY(expr)                                                 \
  do {                                                                \
    if (auto api_status = (expr); !api_status)                        \
      return std::unexpected(drupe::api::to_api(api_status.error())); \
  } while (false)
// NOLINTBEGIN(bugprone-macro-parentheses)
#define API_ASSIGN(lhs, expr)                                                                \
  auto DRUPE_CONCAT(api_result_, __LINE__) = (expr);                                         \
  if (!DRUPE_CONCAT(api_result_, __LINE__))                                                  \
    return std::unexpected(drupe::api::to_api(DRUPE_CONCAT(api_result_, __LINE__).error())); \
  lhs = *std::move(DRUPE_CONCAT(api_result_, __LINE__))
// NOLINTEND(bugprone-macro-parentheses)
