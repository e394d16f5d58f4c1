// The catalogue of shapes. Their names are those that clients have built in.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>

namespace drupe::api {

struct Shape {
  std::string_view id;
  std::int64_t vcpu;
  std::int64_t mem_mib;
  std::int64_t cpu_quota_pct;  ///< Of one vCPU; 0: no quota.
};

/// Default size of a sandbox's disk in every shape.
inline constexpr std::int64_t kDefaultDiskMib = 10'240;

[[nodiscard]] std::span<const Shape> shapes();
[[nodiscard]] std::optional<Shape> find_shape(std::string_view id);

/// What a machine with `host_cpus` gives for the shape: a guest has no more CPUs than the machine.
[[nodiscard]] std::int64_t vcpus_here(const Shape& shape, unsigned host_cpus);
[[nodiscard]] double cpus_here(const Shape& shape, unsigned host_cpus);

}  // namespace drupe::api
