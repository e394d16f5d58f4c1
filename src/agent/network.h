// The guest's network card as the host wants it: by rtnetlink, without a program of the image's.
#pragma once

#include "agent/work.h"
#include "protocol/messages.h"

namespace drupe::agent {

/// Sets the card up and returns when packets can flow, or takes it down. May wait for the card's link, so it
/// runs in a helper. Doing it again with the same values changes nothing.
Status set_network(const Work& work, const SetNetworkRequest& request);

}  // namespace drupe::agent
