// What a save keeps of a sandbox's network for whoever goes on from it.
#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "net/policy/pins.h"
#include "net/stack/flow_table.h"

namespace drupe::net {

struct SavedNet {
  FlowTable flows;                ///< Are reset.
  std::vector<Pins::Saved> pins;  ///< At most Pins::kMaxPins.
};

/// Little-endian: u32 magic "DNET", u16 version 1, text of encode_flow_table(), u32 count of pins; then for
/// each text name, u8 size of the address (4, 16), address, u32 seconds left.
[[nodiscard]] std::string encode_saved_net(const SavedNet& saved);
/// Takes hostile bytes.
Result<SavedNet> decode_saved_net(ByteView bytes);

}  // namespace drupe::net
