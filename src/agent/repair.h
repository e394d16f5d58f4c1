// What makes a fresh boot or a restored machine its own: clock, randomness, names.
#pragma once

#include <string>

#include "agent/work.h"
#include "protocol/messages.h"

namespace drupe::agent {

/// Steps of a SetUpRequest that concern the kernel. Keeps the descriptors that they need: opening one runs
/// much of the kernel's code, which an emulated machine that has just been restored translates for the first
/// time.
class KernelRepair {
 public:
  static Result<KernelRepair> create();
  /// Clock and randomness always; the network card's address with a new identity.
  Status apply(const SetUpRequest& request) const;

 private:
  UniqueFd random_, socket_;
};

/// A random UUID in text form.
[[nodiscard]] std::string new_boot_id();
/// All but the hosts file, which is one of the NameFiles. May block, so only for children.
Status write_host_files(const Work& work, const SetHostRequest& request);

}  // namespace drupe::agent
