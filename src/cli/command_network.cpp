// drupe network create, ls, rm, connect, disconnect.
#include <ctime>
#include <functional>

#include "cli/command_group.h"
#include "cli/commands.h"
#include "cli/json_writer.h"
#include "cli/network_view.h"
#include "cli/table.h"
#include "cli/values.h"

namespace drupe::cli {
namespace {

int create_network(Session& session, const Arguments& arguments) {
  FlagSet set("network create [FLAGS] NAME",
              "Makes a private network. Sandboxes that are in it reach each other by address and by "
              "NAME.drupe.internal, whatever else they may reach, and nobody else reaches them by it.");
  set.flag("--json", session.json, "Print one object");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->size() != 1) return session.usage_error(set, "One name is needed.");
  auto engine = session.engine();
  if (!engine) return session.fail_with(engine.error(), 1);
  const auto made = (*engine)->create_private_network(words->front());
  if (!made) return session.fail_with(made.error(), 1);
  return session.print((session.json ? private_network_json(*made) : made->name) + "\n");
}

std::string member_text(const NetworkInfo& network) {
  std::string out;
  for (const auto& member : network.members) {
    if (!out.empty()) out += ", ";
    out += (member.name.empty() ? member.sandbox : member.name) + " " + member.address;
    if (member.state != SandboxState::kRunning) out += " (" + std::string(to_string(member.state)) + ")";
  }
  return out.empty() ? "-" : out;
}

int list_networks(Session& session, const Arguments& arguments) {
  FlagSet set("network ls [FLAGS]", "Lists private networks and their members.");
  set.flag("--json", session.json, "Print a list of objects");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (!words->empty()) return session.usage_error(set, "network ls takes no words.");
  auto engine = session.engine();
  if (!engine) return session.fail_with(engine.error(), 1);
  const auto networks = (*engine)->private_networks();
  if (!networks) return session.fail_with(networks.error(), 1);
  if (session.json) {
    std::string out = "[";
    for (const NetworkInfo& network : *networks)
      out += (out.size() > 1 ? ",\n" : "") + private_network_json(network);
    return session.print(out + "]\n");
  }
  std::vector<std::vector<std::string>> rows;
  for (const NetworkInfo& network : *networks)
    rows.push_back({network.id, network.name, network.subnet, member_text(network)});
  return session.print(format_table({"NETWORK", "NAME", "SUBNET", "MEMBERS"}, rows));
}

int remove_networks(Session& session, const Arguments& arguments) {
  bool force = false;
  FlagSet set("network rm [FLAGS] NETWORK...",
              "Removes private networks. One that has members is refused, with their names.");
  set.flag("-f, --force", force, "Take its members out of it first; their connections within it end");
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->empty()) return session.usage_error(set, "A network is needed.");
  auto engine = session.engine();
  if (!engine) return session.fail_with(engine.error(), 1);
  int status = 0;
  for (const auto& word : *words) {
    const auto removed = (*engine)->remove_private_network(word, force);
    if (!removed)
      status = session.fail_with(removed.error(), 1);
    else if (session.print(word + "\n") != 0)
      return 1;
  }
  return status;
}

using Change = std::function<Status(Engine& engine, const std::string& network, const std::string& id)>;

int change_member(Session& session, const Arguments& arguments, FlagSet& set, const Change& change) {
  auto words = session.parse(set, arguments);
  if (!words) return words.error();
  if (words->size() < 2) return session.usage_error(set, "A network and a sandbox are needed.");
  auto engine = session.engine();
  if (!engine) return session.fail_with(engine.error(), 1);
  int status = 0;
  for (std::size_t i = 1; i < words->size(); ++i) {
    const auto sandbox = (*engine)->find((*words)[i]);
    const auto changed = sandbox ? change(**engine, words->front(), sandbox->record.id)
                                 : Status(std::unexpected(sandbox.error()));
    if (!changed)
      status = session.fail_with(changed.error(), 1);
    else if (session.print(sandbox->record.name + "\n") != 0)
      return 1;
  }
  return status;
}

int connect(Session& session, const Arguments& arguments) {
  std::vector<std::string> aliases;
  FlagSet set(
      "network connect [FLAGS] NETWORK SANDBOX...",
      "Makes sandboxes members of a private network, also while they run. When it returns all members know.");
  set.list("--alias", "NAME", aliases,
           "Another name that it has, below drupe.internal; may be given twice. A member's are replaced");
  return change_member(session, arguments, set,
                       [&aliases](Engine& engine, const std::string& network, const std::string& id) {
                         return engine.connect_network(network, id, aliases);
                       });
}

int disconnect(Session& session, const Arguments& arguments) {
  FlagSet set("network disconnect NETWORK SANDBOX...",
              "Takes sandboxes out of a private network, also while they run. When it returns "
              "their connections within it have ended.");
  return change_member(session, arguments, set,
                       [](Engine& engine, const std::string& network, const std::string& id) {
                         return engine.disconnect_network(network, id);
                       });
}

}  // namespace

int run_command_network(Session& session, const Arguments& arguments) {
  constexpr GroupCommand kCommands[] = {{"create", create_network},
                                        {"ls", list_networks},
                                        {"rm", remove_networks},
                                        {"connect", connect},
                                        {"disconnect", disconnect}};
  const FlagSet set("network create|ls|rm|connect|disconnect ...", "Private networks between sandboxes.");
  return run_group(session, set, "network", kCommands, arguments);
}

}  // namespace drupe::cli
