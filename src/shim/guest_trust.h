// Giving a guest the certificate authorities that the host trusts.
#pragma once

#include <string_view>

#include "base/event_loop.h"
#include "shim/guest_link.h"

namespace drupe {

/// Returns when the guest's clients trust them: `bundle` is an encoded TrustBundle, which nothing here reads.
/// User work must not be frozen. Waits in the loop.
Status give_trust(EventLoop& loop, GuestLink& link, std::string_view bundle, Deadline deadline);

}  // namespace drupe
