// Ends the sharing of the agent's memory with its children.
#pragma once

namespace drupe::agent {

/// Writes to each page of this process that a fork has left shared, so that no later write has to copy one.
/// For the moment before a machine is saved: in each machine restored from it the agent's first writes, and
/// those of a waiting child, would otherwise be page faults that copy, in code not translated yet. Costs the
/// memory of the copies, some 100 pages. Pages that were never used stay so. The caller is single-threaded.
void own_pages();

}  // namespace drupe::agent
