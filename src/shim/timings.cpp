#include "shim/timings.h"

#include <cstdint>

namespace drupe {

void append_timings(ByteWriter& writer, const StageTimings& timings) {
  writer.number(static_cast<std::uint32_t>(timings.size()));
  // Microseconds: the writer knows no floating point.
  for (const auto& [name, ms] : timings) writer.text(name).number(static_cast<std::uint64_t>(ms * 1000));
}

StageTimings read_timings(ByteReader& reader) {
  StageTimings timings;
  const auto count = reader.number<std::uint32_t>();
  for (std::uint32_t i = 0; reader.ok() && i < count; ++i) {
    std::string name = reader.text();
    const auto us = reader.number<std::uint64_t>();
    timings.emplace_back(std::move(name), static_cast<double>(us) / 1000);
  }
  return timings;
}

}  // namespace drupe
