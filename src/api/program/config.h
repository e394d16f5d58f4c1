// What druped is told: by its configuration file and its flags, which win.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"

namespace drupe::api {

struct Config {
  std::string home;                   ///< home: empty is the engine's default.
  std::string address = "127.0.0.1";  ///< address: numeric; what is not loopback needs insecure_public.
  std::uint16_t port = 7070;          ///< port
  bool accept_emulation = false;      ///< accept_emulation
  bool insecure_public = false;       ///< insecure_public: listen on any address without TLS.
  std::string tls_cert, tls_key;      ///< tls_cert, tls_key: PEM files; both or none.
  std::string public_url;             ///< public_url: as clients reach this server; empty: by its address.
  std::string region = "local";       ///< region
  std::string default_rootfs = "devbox:1";                 ///< default_rootfs
  std::string preview_domain = "sb.localhost";             ///< preview_domain
  std::vector<std::string> open_ranges;                    ///< egress.open_ranges
  std::vector<std::string> ceiling;                        ///< egress.ceiling; empty: none.
  std::int64_t most_disk_mib = 1048576;                    ///< limits.disk_mib
  std::int64_t max_requests = 512;                         ///< limits.requests
  std::int64_t retention_seconds = 90;                     ///< limits.retention_seconds
  std::int64_t most_templates = 20;                        ///< limits.templates, of one user
  std::vector<std::string> prepared_images;                ///< images.prepare
  std::vector<std::string> build_egress;                   ///< templates.egress; empty: everything.
  bool build_host_ca = false;                              ///< templates.host_ca
  std::int64_t build_memory_mib = 2048;                    ///< templates.memory_mib
  std::int64_t build_vcpu = 2;                             ///< templates.vcpu; no more than the machine has.
  std::int64_t build_seconds = 1800;                       ///< templates.timeout_seconds
  std::int64_t builds = 4;                                 ///< templates.builds, at once
  std::vector<std::string> build_registries{"docker.io"};  ///< templates.registries
  /// templates.base_images: what names of base images mean here.
  std::map<std::string, std::string> base_images{{"nodeops/sandbox:debian", "devbox:1"},
                                                 {"nodeops/sandbox:alpine", "alpine:3.20"}};
  std::int64_t paused_ttl_seconds = 0;         ///< limits.paused_ttl_seconds; 0: none
  std::int64_t max_lifetime_seconds = 0;       ///< limits.max_lifetime_seconds; 0: none
  std::int64_t least_auto_pause_seconds = 60;  ///< limits.least_auto_pause_seconds
  std::int64_t quota_sandboxes = 0;            ///< quota.sandboxes; 0: none, as those below
  std::int64_t quota_vcpu = 0;                 ///< quota.vcpu
  std::int64_t quota_mem_mib = 0;              ///< quota.mem_mib
  std::int64_t quota_disk_mib = 0;             ///< quota.disk_mib
  std::string pool_image;                      ///< pool.image; empty: no pool.
  std::string pool_shape = "s-1vcpu-1gb";      ///< pool.shape
  std::int64_t pool_size = 2;                  ///< pool.size
  std::string log_format = "text";             ///< log.format: "text" or "json"
  bool log_requests = true;                    ///< log.requests
  std::int64_t audit_mib = 16;                 ///< log.audit_mib: of each of the five files; 0: none
};

/// Adds what the TOML file says. Unknown keys and wrong types are kInvalidArgument, with their line.
Status read_config_file(Config& config, const std::string& path);

/// What is left of the command line when the flags are taken.
struct CommandLine {
  Config config;
  std::vector<std::string> words;
  std::string user;  ///< --user of `key create`.
  bool help = false, version = false, json = false;
};
/// Reads --config first, wherever it stands; other flags win over it.
Result<CommandLine> read_command_line(std::span<const std::string> arguments);
/// The text of --help.
[[nodiscard]] std::string help_text();

/// Whether that is told apart here: a public address without TLS is refused, and a ceiling that has what is
/// no rule.
Status check_config(const Config& config);
/// "https://host:port" without a slash at its end, of a server that listens on `port`.
[[nodiscard]] std::string public_url_of(const Config& config, std::uint16_t port);
/// Preview addresses with "<id>" and "<port>" in them, below that URL's scheme and port.
[[nodiscard]] std::string preview_template_of(const Config& config, std::uint16_t port);
/// What no sandbox reaches beyond, whatever its own rules; nothing when the configuration sets no bound.
[[nodiscard]] std::optional<NetworkOptions> ceiling_of(const Config& config);

}  // namespace drupe::api
