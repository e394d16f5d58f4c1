// read_config_file(): the only user of toml++.
#include <algorithm>
#include <array>
#include <functional>
#include <string_view>

#include <fcntl.h>

#include <toml++/toml.h>

#include "api/program/config.h"
#include "base/files.h"

namespace drupe::api {
namespace {

constexpr std::size_t kMostBytes = std::size_t{1} << 20;

struct Place {
  std::string file;
  std::string key;
  const toml::node& node;
};

std::unexpected<Error> wrong(const Place& place, const std::string& what) {
  return fail(ErrorCode::kInvalidArgument, place.file + ":" + std::to_string(place.node.source().begin.line) +
                                               ": " + place.key + " " + what);
}

using Setter = Status (*)(Config&, const Place&);

template <auto Member>
Status text(Config& config, const Place& place) {
  const auto value = place.node.value_exact<std::string>();
  if (!value) return wrong(place, "must be a string");
  config.*Member = *value;
  return {};
}
template <auto Member>
Status flag(Config& config, const Place& place) {
  const auto value = place.node.value_exact<bool>();
  if (!value) return wrong(place, "must be true or false");
  config.*Member = *value;
  return {};
}
template <auto Member, std::int64_t Least, std::int64_t Most>
Status number(Config& config, const Place& place) {
  const auto value = place.node.value_exact<std::int64_t>();
  if (!value || *value < Least || *value > Most)
    return wrong(place, "must be a number from " + std::to_string(Least) + " to " + std::to_string(Most));
  config.*Member = static_cast<std::remove_reference_t<decltype(config.*Member)>>(*value);
  return {};
}
template <auto Member>
Status texts(Config& config, const Place& place) {
  const auto* const array = place.node.as_array();
  if (array == nullptr || !array->is_homogeneous(toml::node_type::string)) {
    if (array == nullptr || !array->empty()) return wrong(place, "must be a list of strings");
  }
  (config.*Member).clear();
  for (const auto& item : *array) (config.*Member).push_back(item.value<std::string>().value_or(""));
  return {};
}

/// A table of strings; what it says is added.
template <auto Member>
Status pairs(Config& config, const Place& place) {
  const auto* const table = place.node.as_table();
  if (table == nullptr) return wrong(place, "must be a table of strings");
  for (const auto& [name, item] : *table) {
    const toml::node& node = item;
    const auto value = node.value_exact<std::string>();
    if (!value)
      return wrong(Place{place.file, place.key + "." + std::string(name.str()), node}, "must be a string");
    (config.*Member)[std::string(name.str())] = *value;
  }
  return {};
}

constexpr std::int64_t kTenYears = 315'360'000, kMostQuota = 1'000'000'000;

struct Known {
  std::string_view key;
  Setter set;
};
constexpr std::array kKnown{
    Known{"home", text<&Config::home>},
    Known{"address", text<&Config::address>},
    Known{"port", number<&Config::port, 0, 65535>},
    Known{"accept_emulation", flag<&Config::accept_emulation>},
    Known{"insecure_public", flag<&Config::insecure_public>},
    Known{"tls_cert", text<&Config::tls_cert>},
    Known{"tls_key", text<&Config::tls_key>},
    Known{"public_url", text<&Config::public_url>},
    Known{"region", text<&Config::region>},
    Known{"preview_domain", text<&Config::preview_domain>},
    Known{"default_rootfs", text<&Config::default_rootfs>},
    Known{"egress.open_ranges", texts<&Config::open_ranges>},
    Known{"egress.ceiling", texts<&Config::ceiling>},
    Known{"limits.disk_mib", number<&Config::most_disk_mib, 1024, 1048576>},
    Known{"limits.requests", number<&Config::max_requests, 4, 4096>},
    Known{"limits.retention_seconds", number<&Config::retention_seconds, 0, 86400>},
    Known{"limits.templates", number<&Config::most_templates, 0, 10000>},
    Known{"images.prepare", texts<&Config::prepared_images>},
    Known{"templates.egress", texts<&Config::build_egress>},
    Known{"templates.host_ca", flag<&Config::build_host_ca>},
    Known{"templates.memory_mib", number<&Config::build_memory_mib, 256, 65536>},
    Known{"templates.vcpu", number<&Config::build_vcpu, 1, 32>},
    Known{"templates.timeout_seconds", number<&Config::build_seconds, 10, 86400>},
    Known{"templates.builds", number<&Config::builds, 1, 64>},
    Known{"templates.registries", texts<&Config::build_registries>},
    Known{"templates.base_images", pairs<&Config::base_images>},
    Known{"limits.paused_ttl_seconds", number<&Config::paused_ttl_seconds, 0, kTenYears>},
    Known{"limits.max_lifetime_seconds", number<&Config::max_lifetime_seconds, 0, kTenYears>},
    Known{"limits.least_auto_pause_seconds", number<&Config::least_auto_pause_seconds, 1, 86400>},
    Known{"quota.sandboxes", number<&Config::quota_sandboxes, 0, kMostQuota>},
    Known{"quota.vcpu", number<&Config::quota_vcpu, 0, kMostQuota>},
    Known{"quota.mem_mib", number<&Config::quota_mem_mib, 0, kMostQuota>},
    Known{"quota.disk_mib", number<&Config::quota_disk_mib, 0, kMostQuota>},
    Known{"pool.image", text<&Config::pool_image>},
    Known{"pool.shape", text<&Config::pool_shape>},
    Known{"pool.size", number<&Config::pool_size, 1, 64>},
    Known{"log.format", text<&Config::log_format>},
    Known{"log.requests", flag<&Config::log_requests>},
    Known{"log.audit_mib", number<&Config::audit_mib, 0, 1024>},
};

constexpr std::array<std::string_view, 7> kTables{"egress", "images", "limits",   "log",
                                                  "pool",   "quota",  "templates"};

Status apply(Config& config, const std::string& file, const std::string& prefix, const toml::table& table) {
  for (const auto& [name, node] : table) {
    const std::string key = prefix + std::string(name.str());
    const Known* known = nullptr;
    for (const Known& one : kKnown)
      if (one.key == key) known = &one;
    if (known != nullptr) {
      DRUPE_TRY(known->set(config, Place{file, key, node}));
    } else if (node.is_table() && std::ranges::find(kTables, key) != kTables.end()) {
      DRUPE_TRY(apply(config, file, key + ".", *node.as_table()));
    } else {
      return wrong(Place{file, key, node}, "is not known; docs/druped.md has every key");
    }
  }
  return {};
}

}  // namespace

Status read_config_file(Config& config, const std::string& path) {
  auto bytes = read_file(AT_FDCWD, path, kMostBytes);
  if (!bytes) return std::unexpected(std::move(bytes).error().in("Reading the configuration " + path));
  toml::table table;
  try {
    table = toml::parse(*bytes);
  } catch (const toml::parse_error& error) {
    return fail(ErrorCode::kInvalidArgument, path + ":" + std::to_string(error.source().begin.line) + ": " +
                                                 std::string(error.description()));
  }
  return apply(config, path, "", table);
}

}  // namespace drupe::api
