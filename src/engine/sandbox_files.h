// The files in a sandbox's directory: which it needs, and removing the others.
#pragma once

#include <string>
#include <vector>

#include "engine/base_snapshot.h"
#include "engine/home.h"
#include "shim/record.h"

namespace drupe {

inline constexpr const char* kImageFile = "image.ext4";

/// Links a base snapshot and its kernel into `dir` and makes `record` start from them. Replaces links of an
/// earlier try.
Status link_base(const Home& home, const BaseManifest& manifest, int dir, SandboxRecord& record);
/// Links the kernel and initramfs of `assets` into `dir`, replacing older ones.
Status link_kernel(const Home& home, const std::string& kernel_directory, int dir);
/// The record in the directory of the sandbox `id`. One that names another sandbox is kIntegrity: its shim
/// can write it, and paths are made from ids.
Result<SandboxRecord> read_own_record(int dir, const std::string& id);
/// Puts the name of a new writable node on the disk chain; the shim makes it.
void add_disk_node(SandboxRecord& record);
/// Names of all files `record` needs, kernel included.
[[nodiscard]] std::vector<std::string> needed_files(const SandboxRecord& record);
/// Removes what `record` does not need: files of saves that did not finish, a dead shim's socket. The caller
/// holds the sandbox's lock. Returns how many files that were.
std::uint32_t sweep_files(int dir, const SandboxRecord& record);
/// A record that starts its disk from a cold boot: no base memory, no saved state.
void forget_memory(SandboxRecord& record);

/// CLOCK_REALTIME.
[[nodiscard]] std::int64_t realtime_ns();

}  // namespace drupe
