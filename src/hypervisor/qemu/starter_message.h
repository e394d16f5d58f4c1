// What a shim and its starter (starter.h) tell each other. The starter takes what comes as hostile: a shim
// that its guest has taken over may send anything.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include <sys/types.h>

#include "base/pass_fds.h"
#include "hypervisor/hypervisor.h"
#include "hypervisor/qemu/machine.h"

namespace drupe {

inline constexpr std::size_t kMaxStarterMessage = 64 * 1024;

/// A machine to be prepared: no kernel, no saved state.
FdMessage encode_start(LaunchSpec spec);
Result<LaunchSpec> decode_start(FdMessage message);

/// The helper program, with its log and its own descriptor.
FdMessage helper_request(UniqueFd log, UniqueFd fd);
[[nodiscard]] bool is_helper_request(const FdMessage& message);

/// The helper's errand.
FdMessage errand_request(std::string_view request);
/// The request of one; nothing for other messages.
[[nodiscard]] std::optional<std::string_view> errand_of(const FdMessage& message);

/// Of an errand, only the descriptor is told, as `control`. Of a helper, only its process, its confinement
/// and the socket `control` are told.
struct StartAnswer {
  Result<QemuParts> parts = QemuParts();
  /// Children of the shim that never became a hypervisor.
  std::vector<pid_t> failed;
};
FdMessage encode_answer(StartAnswer answer);
/// An error: the message is malformed.
Result<StartAnswer> decode_answer(FdMessage message);

}  // namespace drupe
