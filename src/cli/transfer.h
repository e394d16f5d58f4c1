// Copies between the host and a sandbox, with docker cp's rules. Nothing that a guest made is followed on the
// host.
#pragma once

#include <string>

#include "base/event_loop.h"
#include "base/result.h"
#include "shim/client.h"

namespace drupe::cli {

struct CopyOptions {
  bool archive = false;      ///< Keep user and group (to the host: only root can).
  bool follow_link = false;  ///< Of the source itself; links inside are copied as links.
};

/// `source` on the host ("-": a tar stream on stdin, unpacked into the folder `target`) to `target` in the
/// guest. Relative guest paths start at /.
Status copy_to_guest(EventLoop& loop, ShimClient& client, const std::string& source,
                     const std::string& target, const CopyOptions& options);
/// `source` in the guest to `target` on the host ("-": a tar stream on stdout).
/// Before the work whose result is to be copied: whether this machine has what is copied, or the folder that
/// it goes to. "-" is good.
Status check_copy_source(const std::string& source);
Status check_copy_target(const std::string& target);

Status copy_from_guest(EventLoop& loop, ShimClient& client, const std::string& source,
                       const std::string& target, const CopyOptions& options);

}  // namespace drupe::cli
