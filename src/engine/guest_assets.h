// The guest's kernel and initramfs, kept in the home under the digest of their bytes, so that a sandbox or
// base snapshot goes on with those it was made with after an upgrade.
#pragma once

#include <string>

#include "engine/engine.h"
#include "engine/home.h"

namespace drupe {

/// Where the parts of an installation are.
struct Installation {
  std::string shim_path;     ///< drupe-shim
  std::string preload_path;  ///< libdrupe-ram.so
  std::string net_path;      ///< drupe-net; without it no sandbox can have a network.
  std::string guest_dir;     ///< vmlinux and initramfs.cpio
};
/// From the options, the environment, and where the running program is. Nothing is checked for existence.
Result<Installation> find_installation(const EngineOptions& options);

struct GuestAssets {
  std::string digest;     ///< SHA-256 hex over both files' digests.
  std::string directory;  ///< "kernels/<digest>" of the home; holds kKernelFile and kInitramfsFile.
};
/// Takes the files of `guest_dir` over into the home unless it has them already. Digests are remembered by
/// file identity, size and modification time, so the common case costs four stat calls and one small read.
Result<GuestAssets> provide_guest_assets(const Home& home, const std::string& guest_dir);

/// Hard link `from` (in directory `from_dir`) as `to` in `to_dir`. Where links run out (EMLINK) the file is
/// copied.
Status link_file(DirFd from_dir, const std::string& from, DirFd to_dir, const std::string& to);
/// Copies a regular file, holes included.
Status copy_file(DirFd from_dir, const std::string& from, DirFd to_dir, const std::string& to, mode_t mode);

}  // namespace drupe
