#include "api/program/config.h"

#include <charconv>
#include <functional>
#include <map>

#include <arpa/inet.h>
#include <netinet/in.h>

#include "api/service/egress.h"
#include "api/service/shapes.h"

namespace drupe::api {
namespace {

bool is_loopback(const std::string& address) {
  in_addr v4{};
  in6_addr v6{};
  if (::inet_pton(AF_INET, address.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  return ::inet_pton(AF_INET6, address.c_str(), &v6) == 1 && IN6_IS_ADDR_LOOPBACK(&v6);
}

std::unexpected<Error> usage(const std::string& why) {
  return fail(ErrorCode::kInvalidArgument, why, "'druped --help' tells what there is.");
}

Result<std::uint16_t> port_of(const std::string& text) {
  std::uint16_t port = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), port);
  if (error != std::errc() || end != text.data() + text.size())
    return usage("'" + text.substr(0, 40) + "' is no port");
  return port;
}

/// http(s)://host[:port], and nothing behind it.
struct Url {
  std::string scheme;
  std::string port;  ///< ":8443", or empty.

  static std::optional<Url> parse(const std::string& text) {
    const auto colon = text.find("://");
    const std::string scheme = text.substr(0, colon);
    if (scheme != "http" && scheme != "https") return std::nullopt;
    std::string host = text.substr(colon + 3);
    if (host.find_first_of("/?#@ <>\"") != std::string::npos) return std::nullopt;
    Url url{scheme, {}};
    if (const auto at = host.rfind(':'); at != std::string::npos && host.find(']', at) == std::string::npos) {
      url.port = host.substr(at);
      const auto number = port_of(url.port.substr(1));
      if (!number || *number == 0) return std::nullopt;
      host.resize(at);
    }
    return host.empty() ? std::nullopt : std::optional(url);
  }
};

}  // namespace

std::string help_text() {
  return R"(druped runs the CreateOS HTTP API v1 on this machine.

Usage: druped [FLAGS]                      serve
       druped key create [--user NAME]     make an API key and print it, this once
       druped key list
       druped key revoke ID                in force at once
       druped quota show USER              what the user may have; "-" is the server's own value
       druped quota set USER NAME=VALUE... sandboxes, vcpu, mem_mib, disk_mib; in force at once
       druped config check                 read the configuration and say what is wrong with it

Flags:
  --config FILE         TOML; docs/druped.md has every key
  --home DIRECTORY      default: $DRUPE_HOME, else $XDG_DATA_HOME/drupe, else ~/.local/share/drupe
  --address ADDRESS     to listen on; default 127.0.0.1
  --port PORT           default 7070; 0: any free one
  --tls-cert FILE       serve HTTPS with this certificate and those that it needs (PEM)
  --tls-key FILE        its key (PEM); both are read again when they change, and at SIGHUP
  --public-url URL      how clients reach this server, for what it tells them
  --preview-domain NAME domain of preview addresses; default sb.localhost
  --insecure-public     listen on an address that is not loopback, without TLS
  --accept-emulation    create sandboxes although this machine can only emulate
  --region NAME         what sandboxes are said to be in; default "local"
  --rootfs NAME         for creates that name none; default devbox:1
  --json                key list: as JSON
  --help, --version
)";
}

Status check_config(const Config& config) {
  in6_addr any{};
  if (::inet_pton(AF_INET, config.address.c_str(), &any) != 1 &&
      ::inet_pton(AF_INET6, config.address.c_str(), &any) != 1)
    return fail(ErrorCode::kInvalidArgument, "address \"" + config.address + "\" is not numeric",
                "Write for example 127.0.0.1 or ::1.");
  if (!config.pool_image.empty() && !find_shape(config.pool_shape))
    return fail(ErrorCode::kInvalidArgument, "pool.shape \"" + config.pool_shape + "\" is not known");
  if (config.log_format != "text" && config.log_format != "json")
    return fail(ErrorCode::kInvalidArgument, "log.format must be \"text\" or \"json\"");
  if (auto ceiling = network_for(config.ceiling, config.open_ranges); !ceiling)
    return std::unexpected(std::move(ceiling).error().in("egress.ceiling"));
  if (auto build = network_for(config.build_egress, config.open_ranges); !build)
    return std::unexpected(std::move(build).error().in("templates.egress"));
  if (config.tls_cert.empty() != config.tls_key.empty())
    return fail(ErrorCode::kInvalidArgument, "tls_cert and tls_key need each other");
  if (const std::string& url = config.public_url; !url.empty() && !Url::parse(url))
    return fail(ErrorCode::kInvalidArgument, "public_url \"" + url + "\" is no address of a server",
                "Write for example https://sandboxes.example.com.");
  if (is_loopback(config.address) || config.insecure_public || !config.tls_cert.empty()) return {};
  return fail(
      ErrorCode::kInvalidArgument,
      "The address " + config.address + " can be reached by others, and without TLS they could read keys",
      "Give --tls-cert and --tls-key, put a proxy with TLS before a loopback address, or say "
      "--insecure-public.");
}

std::string public_url_of(const Config& config, std::uint16_t port) {
  if (!config.public_url.empty()) return config.public_url;
  const bool v6 = config.address.find(':') != std::string::npos;
  return std::string(config.tls_cert.empty() ? "http://" : "https://") +
         (v6 ? "[" + config.address + "]" : config.address) + ":" + std::to_string(port);
}

std::string preview_template_of(const Config& config, std::uint16_t port) {
  // check_config() has seen that it is one.
  const Url url = *Url::parse(public_url_of(config, port));
  return url.scheme + "://<id>-<port>." + config.preview_domain + url.port;
}

std::optional<NetworkOptions> ceiling_of(const Config& config) {
  if (config.ceiling.empty()) return std::nullopt;
  auto ceiling = network_for(config.ceiling, config.open_ranges);
  // Nothing at all for what check_config() would have refused.
  return ceiling ? *std::move(ceiling) : NetworkOptions{};
}

Result<CommandLine> read_command_line(std::span<const std::string> arguments) {
  CommandLine out;
  for (std::size_t i = 0; i + 1 < arguments.size(); ++i)
    if (arguments[i] == "--config") DRUPE_TRY(read_config_file(out.config, arguments[i + 1]));
  const std::map<std::string, std::function<Status(const std::string&)>> with_value{
      {"--config", [](const std::string&) -> Status { return {}; }},
      {"--home",
       [&](const std::string& text) -> Status {
         out.config.home = text;
         return {};
       }},
      {"--address",
       [&](const std::string& text) -> Status {
         out.config.address = text;
         return {};
       }},
      {"--tls-cert",
       [&](const std::string& text) -> Status {
         out.config.tls_cert = text;
         return {};
       }},
      {"--tls-key",
       [&](const std::string& text) -> Status {
         out.config.tls_key = text;
         return {};
       }},
      {"--public-url",
       [&](const std::string& text) -> Status {
         out.config.public_url = text;
         return {};
       }},
      {"--preview-domain",
       [&](const std::string& text) -> Status {
         out.config.preview_domain = text;
         return {};
       }},
      {"--region",
       [&](const std::string& text) -> Status {
         out.config.region = text;
         return {};
       }},
      {"--rootfs",
       [&](const std::string& text) -> Status {
         out.config.default_rootfs = text;
         return {};
       }},
      {"--user",
       [&](const std::string& text) -> Status {
         out.user = text;
         return {};
       }},
      {"--port",
       [&](const std::string& text) -> Status {
         DRUPE_ASSIGN(out.config.port, port_of(text));
         return {};
       }},
  };
  const std::map<std::string, bool*> switches{
      {"--accept-emulation", &out.config.accept_emulation},
      {"--insecure-public", &out.config.insecure_public},
      {"--help", &out.help},
      {"-h", &out.help},
      {"--version", &out.version},
      {"--json", &out.json},
  };
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    const std::string& word = arguments[i];
    if (!word.starts_with('-')) {
      out.words.push_back(word);
    } else if (const auto on = switches.find(word); on != switches.end()) {
      *on->second = true;
    } else if (const auto flag = with_value.find(word); flag != with_value.end()) {
      if (i + 1 == arguments.size()) return usage(word + " needs a value");
      DRUPE_TRY(flag->second(arguments[++i]));
    } else {
      return usage("There is no flag " + word.substr(0, 80));
    }
  }
  return out;
}

}  // namespace drupe::api
