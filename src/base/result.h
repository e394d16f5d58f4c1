// Errors as values: a sentence for a person, its cause, and the next step.
#pragma once

#include <cstdint>
#include <expected>
#include <string>
#include <string_view>
#include <utility>

namespace drupe {

/// What kind of thing went wrong. Callers decide by this; people read the message.
enum class ErrorCode : std::uint8_t {
  kInvalidArgument,     ///< The caller's own request is wrong.
  kNotFound,            ///< A name, id, file or image that is not there.
  kAlreadyExists,       ///< A name that is taken.
  kInvalidState,        ///< Right request, wrong state of the sandbox.
  kPermission,          ///< The host or the guest refused access.
  kLimit,               ///< A documented bound or the machine's room is exhausted.
  kTimeout,             ///< A deadline passed.
  kUnsupported,         ///< Not offered here.
  kUnavailable,         ///< A registry or another service cannot be reached.
  kIntegrity,           ///< Bytes do not match their digest or format.
  kMemoryIncompatible,  ///< Saved memory does not fit this machine or hypervisor any more.
  kVmLost,              ///< The virtual machine ended without being asked to.
  kBusy,                ///< Another operation holds the sandbox.
  kCancelled,           ///< The caller went away or asked to stop.
  kHost,                ///< This program or the machine failed.
  kGuest,               ///< The guest misbehaved; only its own sandbox is affected.
};

/// Stable lower-case word for `code`, for JSON ("invalid_argument", ...).
[[nodiscard]] std::string_view to_string(ErrorCode code);
/// Inverse of to_string(); an unknown word gives kHost.
[[nodiscard]] ErrorCode error_code_from(std::string_view word);

struct Error {
  ErrorCode code = ErrorCode::kHost;
  std::string message;    ///< "Opening the kernel image failed: No such file or directory"
  std::string next_step;  ///< What the reader can do about it; may be empty.
  int sys_errno = 0;      ///< 0 when no system call failed.

  /// Puts the caller's view in front; the first cause always survives.
  [[nodiscard]] Error in(std::string_view what) &&;
  [[nodiscard]] Error with_next_step(std::string_view step) &&;
};

/// "message. next step" on one line, for a terminal.
[[nodiscard]] std::string to_string(const Error& error);

template <class T>
class [[nodiscard]] Result : public std::expected<T, Error> {
 public:
  using std::expected<T, Error>::expected;
};

using Status = Result<void>;

[[nodiscard]] std::unexpected<Error> fail(ErrorCode code, std::string message, std::string next_step = {});
/// Appends the text of `err` (an errno value) to `what`.
[[nodiscard]] std::unexpected<Error> fail_errno(ErrorCode code, std::string_view what, int err);
/// fail_errno() with a code chosen from `err`: ENOENT is kNotFound, EACCES kPermission, ENOSPC kLimit, else
/// kHost.
[[nodiscard]] std::unexpected<Error> fail_sys(std::string_view what, int err);

}  // namespace drupe

#define DRUPE_CONCAT_INNER(a, b) a##b
#define DRUPE_CONCAT(a, b) DRUPE_CONCAT_INNER(a, b)

/// Returns the error of `expr` (a Result) from the enclosing function.
#define DRUPE_TRY(expr)                                                                                     \
  do {                                                                                                      \
    if (auto drupe_status = (expr); !drupe_status) return std::unexpected(std::move(drupe_status).error()); \
  } while (false)

/// Declares or assigns `lhs` from the value of `expr`, or returns its error. `lhs` may be a declaration, so
/// it cannot stand in parentheses.
// NOLINTBEGIN(bugprone-macro-parentheses)
#define DRUPE_ASSIGN(lhs, expr)                                                       \
  auto DRUPE_CONCAT(drupe_result_, __LINE__) = (expr);                                \
  if (!DRUPE_CONCAT(drupe_result_, __LINE__))                                         \
    return std::unexpected(std::move(DRUPE_CONCAT(drupe_result_, __LINE__)).error()); \
  lhs = *std::move(DRUPE_CONCAT(drupe_result_, __LINE__))
// NOLINTEND(bugprone-macro-parentheses)
