#include "net/program/saved_net.h"

#include <algorithm>

#include "net/policy/name.h"

namespace drupe::net {
namespace {

constexpr std::uint32_t kMagic = 0x54454e44;  // "DNET"
constexpr std::uint16_t kVersion = 1;

std::unexpected<Error> malformed() {
  return fail(ErrorCode::kIntegrity, "What was saved of the network is malformed");
}

}  // namespace

std::string encode_saved_net(const SavedNet& saved) {
  const std::size_t count = std::min(saved.pins.size(), Pins::kMaxPins);
  ByteWriter writer;
  writer.number(kMagic).number(kVersion).text(encode_flow_table(saved.flows));
  writer.number(static_cast<std::uint32_t>(count));
  for (std::size_t i = 0; i < count; ++i) {
    const Pins::Saved& pin = saved.pins[i];
    const ByteView address = pin.address.wire();
    writer.text(pin.name).number(static_cast<std::uint8_t>(address.size()));
    for (const std::uint8_t byte : address) writer.number(byte);
    writer.number(static_cast<std::uint32_t>(pin.left.count()));
  }
  return writer.take();
}

Result<SavedNet> decode_saved_net(ByteView bytes) {
  ByteReader reader(bytes);
  const auto magic = reader.number<std::uint32_t>();
  const auto version = reader.number<std::uint16_t>();
  if (!reader.ok() || magic != kMagic) return malformed();
  if (version != kVersion)
    return fail(ErrorCode::kUnsupported,
                "What was saved of the network has version " + std::to_string(version));
  SavedNet saved;
  const std::string flows = reader.text();
  const auto count = reader.number<std::uint32_t>();
  if (!reader.ok() || count > Pins::kMaxPins) return malformed();
  DRUPE_ASSIGN(saved.flows, decode_flow_table(as_bytes(flows)));
  for (std::uint32_t i = 0; i < count; ++i) {
    Pins::Saved pin;
    pin.name = reader.text();
    const auto size = reader.number<std::uint8_t>();
    if (!reader.ok() || (size != 4 && size != 16) || normal_name(pin.name) != pin.name) return malformed();
    std::array<std::uint8_t, 16> raw{};
    for (std::size_t j = 0; j < size; ++j) raw[j] = reader.number<std::uint8_t>();
    const auto address = IpAddress::from_bytes(ByteView(raw).first(size));
    const auto left = reader.number<std::uint32_t>();
    // An address has one spelling here.
    if (!address || address->wire().size() != size || left > Pins::kLongest.count()) return malformed();
    pin.address = *address;
    pin.left = std::chrono::seconds(left);
    saved.pins.push_back(std::move(pin));
  }
  if (!reader.done()) return malformed();
  return saved;
}

}  // namespace drupe::net
