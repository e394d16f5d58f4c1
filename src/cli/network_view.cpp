#include "cli/network_view.h"

#include <nlohmann/json.hpp>

#include "cli/json_writer.h"
#include "cli/values.h"

namespace drupe::cli {
namespace {

void write_rules(JsonWriter& json, std::string_view name, const std::vector<NetworkRecord::Rule>& rules) {
  json.key(name).begin_array();
  for (const auto& rule : rules)
    json.begin_object()
        .field("rule", std::string_view(rule.text))
        .field("origin", std::string_view(rule.origin))
        .end_object();
  json.end_array();
}

std::string rule_lines(std::string_view word, const std::vector<NetworkRecord::Rule>& rules) {
  std::string out;
  for (const auto& rule : rules)
    out += "\n" + std::string(word) + " " + printable(rule.text) +
           (rule.origin.empty() ? "" : " (" + printable(rule.origin) + ")");
  return out;
}

std::string bracketed(const std::string& address) {
  return address.find(':') == std::string::npos ? address : "[" + address + "]";
}

}  // namespace

std::string network_json(const NetworkRecord& network) {
  JsonWriter json;
  json.begin_object().field("mode", to_string(network.mode));
  write_rules(json, "allow", network.allow);
  write_rules(json, "deny", network.deny);
  json.field("allow_private", network.allow_private).key("publications").begin_array();
  for (const auto& one : network.publications)
    json.begin_object()
        .field("address", std::string_view(one.address))
        .field("host_port", one.host_port)
        .field("guest_port", one.guest_port)
        .end_object();
  json.end_array()
      .field("quota_bytes", network.quota_bytes)
      .field("used_bytes", network.used_bytes)
      .end_object();
  return json.str();
}

std::string private_network_json(const NetworkInfo& network) {
  JsonWriter json;
  json.begin_object()
      .field("id", std::string_view(network.id))
      .field("name", std::string_view(network.name))
      .field("subnet", std::string_view(network.subnet))
      .field("created", std::string_view(format_time(network.created_ns)))
      .key("members")
      .begin_array();
  for (const auto& member : network.members)
    json.begin_object()
        .field("sandbox", std::string_view(member.sandbox))
        .field("name", std::string_view(member.name))
        .field("address", std::string_view(member.address))
        .field("state", to_string(member.state))
        .end_object();
  json.end_array().end_object();
  return json.str();
}

std::string network_text(const NetworkRecord& network) {
  std::string out = "mode " + std::string(to_string(network.mode));
  out += rule_lines("allow", network.allow) + rule_lines("deny", network.deny);
  for (const auto& range : network.allow_private) out += "\nallow-private " + printable(range);
  for (const auto& one : network.publications)
    out += "\npublish " + printable(bracketed(one.address)) + ":" + std::to_string(one.host_port) + " -> " +
           std::to_string(one.guest_port);
  if (network.quota_bytes != 0) out += "\nquota " + format_size(network.quota_bytes);
  return out;
}

std::string log_line(std::string_view text) {
  const auto json = nlohmann::json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!json.is_object()) return printable(text);
  const auto word = [&json](const char* name) {
    const auto found = json.find(name);
    if (found == json.end()) return std::string();
    return printable(found->is_string() ? found->get<std::string>() : found->dump());
  };
  std::string out = word("time") + (word("allowed") == "true" ? "  allowed  " : "  refused  ") + word("kind");
  if (const auto name = word("name"); !name.empty()) out += " " + name;
  if (const auto address = word("address"); !address.empty()) {
    const auto port = word("port");
    out += " " + (port.empty() ? address : bracketed(address) + ":" + port);
  }
  if (const auto detail = word("detail"); !detail.empty()) out += " " + detail;
  if (const auto rule = word("rule"); !rule.empty()) out += " (" + rule + ")";
  if (const auto count = word("count"); !count.empty() && count != "1") out += " x" + count;
  return out;
}

}  // namespace drupe::cli
