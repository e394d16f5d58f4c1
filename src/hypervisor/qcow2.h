// Reading a whole disk node, for whoever makes something else of it.
#pragma once

#include <cstdint>

#include "base/result.h"

namespace drupe {

/// Writes what the node holds over `raw`, a file of at least the disk's size that has what lies below; zeros
/// become holes. The node is not in use and hostile: kIntegrity for a damaged one, kLimit for one that holds
/// more than `limit` bytes.
Status apply_qcow2(int node, int raw, std::uint64_t limit);

}  // namespace drupe
