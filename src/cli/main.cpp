// The `drupe` program: finds the command and runs it.
#include <array>
#include <csignal>
#include <cstdio>
#include <string_view>

#include "cli/commands.h"
#include "cli/values.h"

namespace drupe::cli {
namespace {

struct Command {
  std::string_view name;
  std::string_view summary;  ///< Empty: not in the help.
  int (*run)(Session&, const Arguments&);
};

struct Group {
  std::string_view title;
  std::span<const Command> commands;
};

constexpr std::array kRunning{
    Command{"run", "Run a command in a new sandbox", run_command_run},
    Command{"create", "Make a sandbox without starting it", run_command_create},
    Command{"start", "Start sandboxes that were created or have ended", run_command_start},
    Command{"stop", "End sandboxes in good order", run_command_stop},
    Command{"restart", "Stop and start sandboxes", run_command_restart},
    Command{"exec", "Run a command in a sandbox", run_command_exec},
    Command{"attach", "Follow a sandbox's main command", run_command_attach},
    Command{"net", "What sandboxes may reach: set, show, log", run_command_net},
    Command{"network", "Private networks between sandboxes: create, ls, rm, connect, disconnect",
            run_command_network},
    Command{"cp", "Copy files into or out of a sandbox", run_command_cp},
    Command{"kill", "Send a signal to sandboxes", run_command_kill},
    Command{"wait", "Wait until sandboxes have ended and print their exit codes", run_command_wait},
    Command{"rm", "Remove sandboxes", run_command_rm},
    Command{"rename", "Give a sandbox another name", run_command_rename},
};
constexpr std::array kMemory{
    Command{"pause", "Save sandboxes with their memory and free what they use", run_command_pause},
    Command{"resume", "Continue paused sandboxes", run_command_resume},
    Command{"fork", "Make copies of a running or paused sandbox", run_command_fork},
};
constexpr std::array kLooking{
    Command{"ps", "List sandboxes", run_command_ps},
    Command{"logs", "Print what a sandbox's main command wrote", run_command_logs},
    Command{"inspect", "Print everything about sandboxes as JSON", run_command_inspect},
    Command{"stats", "Show what sandboxes use", run_command_stats},
    Command{"top", "List the processes in a sandbox", run_command_top},
};
constexpr std::array kImages{
    Command{"pull", "Fetch an image from a registry", run_command_pull},
    Command{"load", "Read an image from an archive", run_command_load},
    Command{"images", "List images", run_command_images},
    Command{"rmi", "Remove images", run_command_rmi},
    Command{"tag", "Give an image another name", run_command_tag},
    Command{"image", "More about images: inspect, build-debian", run_command_image},
    Command{"warm", "Prepare an image so that its sandboxes start fast", run_command_warm},
};
constexpr std::array kMachine{
    Command{"doctor", "Tell what this machine can do", run_command_doctor},
    Command{"prune", "Remove ended sandboxes and unused files", run_command_prune},
    Command{"version", "Print the version", run_command_version},
};
constexpr std::array kGroups{
    Group{"Sandboxes", kRunning}, Group{"Memory", kMemory},        Group{"Looking", kLooking},
    Group{"Images", kImages},     Group{"This machine", kMachine},
};

std::string help() {
  std::string out =
      "drupe runs untrusted code in virtual machines that are made for it and thrown away.\n\n"
      "Usage: drupe COMMAND [FLAGS] ...      drupe COMMAND --help\n";
  for (const Group& group : kGroups) {
    out += "\n" + std::string(group.title) + ":\n";
    for (const Command& command : group.commands)
      out += "  " + std::string(command.name) + std::string(10 - command.name.size(), ' ') +
             std::string(command.summary) + "\n";
  }
  out += "\nExample: drupe run devbox:1 python3 -c 'print(6*7)'\n";
  return out;
}

int run(const Arguments& arguments) {
  Session session;
  if (arguments.empty()) {
    session.print(help());
    return kOurFault;
  }
  std::string_view name = arguments.front();
  const Arguments rest(arguments.begin() + 1, arguments.end());
  if (name == "--help" || name == "-h" || name == "help") return session.print(help());
  if (name == "--version" || name == "-v") name = "version";
  for (const Group& group : kGroups)
    for (const Command& command : group.commands)
      if (command.name == name) return command.run(session, rest);
  return session.fail_with({ErrorCode::kInvalidArgument, "There is no command '" + printable(name) + "'",
                            "'drupe --help' lists the commands", 0},
                           kOurFault);
}

}  // namespace
}  // namespace drupe::cli

int main(int argc, char** argv) {
  // A reader that has gone is seen as EPIPE, where it can be handled.
  std::signal(SIGPIPE, SIG_IGN);
  return drupe::cli::run({argv + (argc > 0 ? 1 : 0), argv + argc});
}
