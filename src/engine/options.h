// What a caller may ask for, checked once; and how it merges with an image's configuration, as Docker does
// it.
#pragma once

#include <cstdint>
#include <string_view>

#include "base/result.h"
#include "engine/engine.h"

namespace drupe {

struct ImageConfig;

inline constexpr std::uint64_t kMemoryStepMib = 256;
inline constexpr std::uint64_t kLeastMemoryMib = 256;
inline constexpr std::uint64_t kMostMemoryMib = 65536;
inline constexpr std::uint64_t kDefaultDiskBytes = std::uint64_t{8} << 30;
inline constexpr std::uint64_t kMostDiskBytes = std::uint64_t{1} << 40;
/// MAX_ARG_STRLEN of the guest's kernel, with the terminating zero.
inline constexpr std::size_t kMostStringBytes = 131072;
/// Arguments and environment together with 9 bytes for each string (its zero and its pointer): the guest's
/// kernel takes a quarter of the 8 MiB stack limit, and some of that goes to what the agent adds.
inline constexpr std::size_t kMostArgumentBytes = 2'000'000;
/// What becomes every command's environment travels in one request of 64 KiB; what is over goes to the main
/// command only.
inline constexpr std::size_t kMostDefaultEnvBytes = 40'000;

/// Checks every value against its bounds; `host_cpus` bounds `cpus`. The values that depend on the image are
/// checked by apply_image().
Status check_options(const SandboxOptions& options, std::uint32_t host_cpus);
/// Checks one command as `drupe exec` sends it.
Status check_exec(const ExecOptions& options);
/// "KEY=value": the key is [A-Za-z_][A-Za-z0-9_.-]*, no zero byte.
Status check_env(const std::vector<std::string>& env);

/// vCPUs for `cpus` as asked, rounded up; memory rounded up to its step.
[[nodiscard]] MachineShape shape_for(double cpus, std::uint64_t memory_mib);

/// Later entries win; order of first appearance is kept.
[[nodiscard]] std::vector<std::string> merge_env(const std::vector<std::string>& image,
                                                 const std::vector<std::string>& own);

/// Fills the parts of `record` that come from the options and the image: main command, environment, user,
/// directory, stop signal, shape, disk, labels, timers. An entrypoint given by the caller drops the image's
/// Cmd; an empty one drops the image's entrypoint.
Status apply_image(SandboxRecord& record, const SandboxOptions& options, const ImageConfig& config,
                   std::uint64_t image_disk_bytes);

}  // namespace drupe
