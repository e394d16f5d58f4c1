// The files that tell a machine its name, kept in memory.
#pragma once

#include <array>
#include <string>

#include "agent/sys.h"

namespace drupe::agent {

/// A small file that lies over one in the image's /etc.
struct NameFile {
  const char* name;
  mode_t mode;
};
inline constexpr std::array<NameFile, 3> kNameFiles{
    {{"hostname", 0644}, {"hosts", 0644}, {"machine-id", 0444}}};

/// /etc/hostname, /etc/hosts and /etc/machine-id of user work: files of a memory file system of the agent's,
/// mounted over those of the image (work_init.cpp), as container engines do. Each start of a sandbox writes
/// them, mostly in a machine that has just been restored: a disk's file system would run much more of the
/// kernel's code for that, for the first time, and would leave something to flush at the next save.
class NameFiles {
 public:
  /// Makes the files in `directory`; /etc/hosts begins with what the image below `root` has, up to 1 MiB.
  static Result<NameFiles> create(DirFd directory, int root);
  /// The kernel's host name, and the files. Lines of /etc/hosts that are not the agent's stay as they are.
  Status set(const std::string& hostname, const std::string& machine_id);
  /// Replaces the content of /etc/hosts.
  Status set_hosts(const std::string& text);

 private:
  UniqueFd hostname_, hosts_, machine_id_;
};

/// `etc` of the image, wherever it keeps it inside its own root. `flags` as for open().
Result<UniqueFd> open_etc(int root, int flags);

}  // namespace drupe::agent
