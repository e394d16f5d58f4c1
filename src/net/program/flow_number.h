// Flows as keys of tables.
#pragma once

#include <cstdint>

#include "net/stack/packet_address.h"

namespace drupe::net {

/// One number for each flow of a layer.
[[nodiscard]] inline std::uint64_t number_of(FlowId flow) {
  return (std::uint64_t{flow.index} << 32) | flow.generation;
}
/// Inverse of number_of().
[[nodiscard]] inline FlowId flow_of(std::uint64_t number) {
  return {static_cast<std::uint32_t>(number >> 32), static_cast<std::uint32_t>(number)};
}

}  // namespace drupe::net
