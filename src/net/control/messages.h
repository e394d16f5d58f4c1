// What is said to a sandbox's network process. The shim, which may not use this folder, says it: so the
// messages are in the protocol's.
#pragma once

#include "protocol/net_control.h"  // IWYU pragma: export
