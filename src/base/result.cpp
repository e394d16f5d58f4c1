#include "base/result.h"

#include <array>
#include <cerrno>
#include <cstring>

namespace drupe {
namespace {

struct CodeName {
  ErrorCode code;
  std::string_view word;
};

constexpr std::array kNames{
    CodeName{ErrorCode::kInvalidArgument, "invalid_argument"},
    CodeName{ErrorCode::kNotFound, "not_found"},
    CodeName{ErrorCode::kAlreadyExists, "already_exists"},
    CodeName{ErrorCode::kInvalidState, "invalid_state"},
    CodeName{ErrorCode::kPermission, "permission_denied"},
    CodeName{ErrorCode::kLimit, "limit_exceeded"},
    CodeName{ErrorCode::kTimeout, "timeout"},
    CodeName{ErrorCode::kUnsupported, "unsupported"},
    CodeName{ErrorCode::kUnavailable, "unavailable"},
    CodeName{ErrorCode::kIntegrity, "integrity"},
    CodeName{ErrorCode::kMemoryIncompatible, "memory_incompatible"},
    CodeName{ErrorCode::kVmLost, "vm_lost"},
    CodeName{ErrorCode::kBusy, "busy"},
    CodeName{ErrorCode::kCancelled, "cancelled"},
    CodeName{ErrorCode::kHost, "host_error"},
    CodeName{ErrorCode::kGuest, "guest_error"},
};

}  // namespace

std::string_view to_string(ErrorCode code) {
  for (const auto& name : kNames)
    if (name.code == code) return name.word;
  return "host_error";
}

ErrorCode error_code_from(std::string_view word) {
  for (const auto& name : kNames)
    if (name.word == word) return name.code;
  return ErrorCode::kHost;
}

Error Error::in(std::string_view what) && {
  message = std::string(what) + ": " + std::move(message);
  return std::move(*this);
}

Error Error::with_next_step(std::string_view step) && {
  next_step = step;
  return std::move(*this);
}

std::string to_string(const Error& error) {
  std::string text = error.message;
  if (error.next_step.empty()) return text;
  if (!text.empty() && text.back() != '.' && text.back() != '?' && text.back() != '!') text += '.';
  return text + " " + error.next_step;
}

std::unexpected<Error> fail(ErrorCode code, std::string message, std::string next_step) {
  return std::unexpected(Error{code, std::move(message), std::move(next_step), 0});
}

std::unexpected<Error> fail_errno(ErrorCode code, std::string_view what, int err) {
  return std::unexpected(Error{code, std::string(what) + ": " + std::strerror(err), {}, err});
}

std::unexpected<Error> fail_sys(std::string_view what, int err) {
  ErrorCode code = ErrorCode::kHost;
  if (err == ENOENT) code = ErrorCode::kNotFound;
  if (err == EACCES || err == EPERM) code = ErrorCode::kPermission;
  if (err == ENOSPC || err == EDQUOT || err == EMFILE || err == ENFILE || err == ENOMEM)
    code = ErrorCode::kLimit;
  if (err == EEXIST) code = ErrorCode::kAlreadyExists;
  return fail_errno(code, what, err);
}

}  // namespace drupe
