#include "api/routes/envelope.h"

#include <cerrno>

#include "api/json/writer.h"

namespace drupe::api {
namespace {

int status_of(ErrorCode code) {
  switch (code) {
    case ErrorCode::kInvalidArgument:
      return 400;
    case ErrorCode::kNotFound:
      return 404;
    case ErrorCode::kAlreadyExists:
    case ErrorCode::kInvalidState:
    case ErrorCode::kMemoryIncompatible:
    case ErrorCode::kVmLost:
    case ErrorCode::kBusy:
      return 409;
    case ErrorCode::kPermission:
      return 403;
    case ErrorCode::kUnsupported:
      return 501;
    case ErrorCode::kLimit:  // room of the machine; bounds of requests are told by their routes
    case ErrorCode::kUnavailable:
      return 503;
    case ErrorCode::kTimeout:
    case ErrorCode::kIntegrity:
    case ErrorCode::kCancelled:
    case ErrorCode::kHost:
    case ErrorCode::kGuest:
      break;
  }
  return 500;
}

}  // namespace

std::unexpected<ApiError> refuse(int status, std::string code, std::string message) {
  return std::unexpected(ApiError{status, std::move(message), std::move(code)});
}

ApiError to_api(const Error& error) {
  const int status = status_of(error.code);
  return {status, error.message, std::string(to_string(error.code)), "message", status == 503 ? 2 : 0};
}

ApiError file_error(const Error& error) {
  const auto as = [&](int status, std::string_view code) {
    return ApiError{status, error.message, std::string(code)};
  };
  switch (error.sys_errno) {
    case ENOENT:
      return {404, "file not found", "not_found"};
    case EISDIR:
      return as(400, "is_a_directory");
    case ENOTDIR:
      return as(400, "not_a_directory");
    case ENAMETOOLONG:
    case EINVAL:
    case ELOOP:
      return as(400, "invalid_path");
    case EACCES:
    case EPERM:
    case EROFS:
    case ETXTBSY:
      return as(403, "permission");
    case ENOSPC:
    case EDQUOT:
    case EFBIG:
      return as(409, "no_space");
    default:
      return to_api(error);
  }
}

Response success(std::string_view data) {
  Response response;
  response.body = R"({"status":"success","data":)" + std::string(data) + "}";
  return response;
}

Response failure(const ApiError& error) {
  Response response;
  response.status = error.status;
  JsonWriter json;
  json.begin_object();
  if (error.status >= 500) {
    json.field("status", "error").field("message", error.message).field("code", error.status);
    if (!error.code.empty()) json.key("data").begin_object().field("code", error.code).end_object();
  } else {
    json.field("status", "fail").key("data").begin_object().field(error.field, error.message);
    if (!error.code.empty()) json.field("code", error.code);
    json.end_object();
  }
  response.body = json.end_object().take();
  if (error.retry_after_s != 0)
    response.headers.push_back({"Retry-After", std::to_string(error.retry_after_s)});
  return response;
}

}  // namespace drupe::api
