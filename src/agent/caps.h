// The capabilities of user work: all but those that reach behind the guest's own processes.
#pragma once

namespace drupe::agent {

/// Removes them from the bounding set, so that no execve() of a child can bring them back. The caller keeps
/// its own.
void drop_bounding_capabilities();
/// Removes them from the calling process, which does not exec (the init of user work).
void drop_own_capabilities();

}  // namespace drupe::agent
