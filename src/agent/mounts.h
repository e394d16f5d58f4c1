// File systems on block devices in the user's mount namespace, the root excluded.
#pragma once

#include <vector>

#include "agent/work.h"

namespace drupe::agent {

/// One descriptor for each writable one, the most recently mounted first. Enters the user's namespaces, so
/// only for children. What the guest arranged so that it cannot be opened is left out.
std::vector<UniqueFd> open_disk_mounts(const Work& work);

}  // namespace drupe::agent
