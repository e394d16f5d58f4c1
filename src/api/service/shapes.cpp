#include "api/service/shapes.h"

#include <algorithm>
#include <array>

namespace drupe::api {
namespace {

constexpr std::array kShapes{
    Shape{"s-0.25vcpu-512mb", 1, 512, 25}, Shape{"s-0.5vcpu-1gb", 1, 1024, 50},
    Shape{"s-1vcpu-256mb", 1, 256, 0},     Shape{"s-1vcpu-1gb", 1, 1024, 0},
    Shape{"s-2vcpu-2gb", 2, 2048, 0},      Shape{"s-2vcpu-4gb", 2, 4096, 0},
    Shape{"s-4vcpu-4gb", 4, 4096, 0},      Shape{"s-4vcpu-8gb", 4, 8192, 0},
    Shape{"s-4vcpu-16gb", 4, 16384, 0},    Shape{"s-8vcpu-16gb", 8, 16384, 0},
};

}  // namespace

std::span<const Shape> shapes() {
  return kShapes;
}

std::optional<Shape> find_shape(std::string_view id) {
  const auto* const found = std::ranges::find(kShapes, id, &Shape::id);
  if (found == kShapes.end()) return std::nullopt;
  return *found;
}

std::int64_t vcpus_here(const Shape& shape, unsigned host_cpus) {
  return std::min<std::int64_t>(shape.vcpu, std::max(host_cpus, 1U));
}

double cpus_here(const Shape& shape, unsigned host_cpus) {
  if (shape.cpu_quota_pct != 0) return static_cast<double>(shape.cpu_quota_pct) / 100;
  return static_cast<double>(vcpus_here(shape, host_cpus));
}

}  // namespace drupe::api
