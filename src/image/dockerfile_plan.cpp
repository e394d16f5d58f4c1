// plan_build(): what the instructions of a Dockerfile mean, in order.
#include <algorithm>
#include <set>

#include "image/dockerfile.h"
#include "image/dockerfile_words.h"
#include "image/text.h"

namespace drupe {
namespace {

constexpr std::size_t kMostEnv = 256;
constexpr std::size_t kMostEnvBytes = 32 * 1024;
constexpr std::size_t kMostActions = 1000;

std::string joined(const std::string& folder, const std::string& path) {
  if (path.starts_with('/')) return path;
  return (folder.empty() || folder == "/" ? "" : folder) + "/" + path;
}

void set_env(std::vector<std::string>& env, const std::string& name, const std::string& value) {
  const std::string prefix = name + "=";
  const auto found =
      std::ranges::find_if(env, [&](const std::string& one) { return one.starts_with(prefix); });
  if (found == env.end())
    env.push_back(prefix + value);
  else
    *found = prefix + value;
}

class Planner {
 public:
  Planner(const Dockerfile& file, const ImageConfig& base) : file_(file) {
    plan_.config = base;
    for (const std::string& one : base.env) {
      const auto equals = one.find('=');
      if (equals != std::string::npos) variables_[one.substr(0, equals)] = one.substr(equals + 1);
    }
  }

  Result<BuildPlan> run() {
    for (const Instruction& one : file_.before) {
      if (auto known = globals(one); !known) return wrong(one, known.error());
    }
    for (const Instruction& one : file_.after) {
      if (auto taken = take(one); !taken) return wrong(one, taken.error());
      if (plan_.actions.size() > kMostActions) return wrong(one, "there is too much to do");
    }
    return std::move(plan_);
  }

 private:
  static std::unexpected<Error> wrong(const Instruction& at, const std::string& what) {
    return fail(ErrorCode::kInvalidArgument, "line " + std::to_string(at.line) + ": " + what);
  }
  static std::unexpected<Error> wrong(const Instruction& at, const Error& error) {
    return wrong(at, at.keyword + ": " + error.message);
  }
  static std::unexpected<Error> bad(const std::string& what) {
    return fail(ErrorCode::kInvalidArgument, what);
  }

  Result<std::string> expand(std::string_view text) const {
    return expand_word(text, variables_, file_.escape);
  }
  Result<std::vector<std::string>> words(std::string_view text) const {
    return split_words(text, file_.escape);
  }

  /// ARGs before FROM: a later ARG without a value takes theirs.
  Status globals(const Instruction& arg) {
    DRUPE_ASSIGN(const auto all, words(arg.text));
    for (const std::string& word : all) {
      const auto equals = word.find('=');
      if (equals == std::string::npos) continue;
      DRUPE_ASSIGN(globals_[word.substr(0, equals)],
                   expand_word(std::string_view(word).substr(equals + 1), globals_, file_.escape));
    }
    return {};
  }

  Status take(const Instruction& one) {
    const std::string& keyword = one.keyword;
    if (keyword == "RUN") return run_step(one);
    if (keyword == "ENV") return env(one);
    if (keyword == "ARG") return arg(one);
    if (keyword == "WORKDIR") return workdir(one);
    if (keyword == "COPY" || keyword == "ADD") return copy(one);
    if (keyword == "LABEL") return label(one);
    if (keyword == "CMD") return command(one, plan_.config.cmd);
    if (keyword == "ENTRYPOINT") {
      // What the base image would run by default is not what this one's program is given.
      if (!has_cmd_) plan_.config.cmd.clear();
      return command(one, plan_.config.entrypoint);
    }
    if (keyword == "SHELL") {
      auto shell = json_words(one.text);
      if (!shell || shell->empty()) return bad("it must be a list of strings");
      shell_ = *std::move(shell);
      return {};
    }
    if (keyword == "USER") {
      DRUPE_ASSIGN(plan_.config.user, expand(one.text));
      if (plan_.config.user.empty() || plan_.config.user.find_first_of(" \t\n") != std::string::npos)
        return bad("it must be one name");
      return {};
    }
    if (keyword == "STOPSIGNAL") {
      DRUPE_ASSIGN(plan_.config.stop_signal, expand(one.text));
      return {};
    }
    if (keyword == "MAINTAINER") {
      plan_.config.labels["maintainer"] = one.text;
      return {};
    }
    if (keyword == "EXPOSE") return expand(one.text) ? Status{} : bad("it is not understood");
    return {};  // HEALTHCHECK NONE
  }

  std::vector<std::string> shell_form(const std::string& text) const {
    std::vector<std::string> argv = shell_;
    argv.push_back(text);
    return argv;
  }

  Status command(const Instruction& one, std::vector<std::string>& into) {
    if (&into == &plan_.config.cmd) has_cmd_ = true;
    const auto exec = json_words(one.text);
    into = exec ? *exec : shell_form(one.text);
    return {};
  }

  std::vector<std::string> environment() const {
    // Over the base image's own: the sandbox that builds has that already.
    std::vector<std::string> env = plan_.config.env;
    for (const auto& [name, value] : arguments_)
      if (!declared_.contains(name)) set_env(env, name, value);
    return env;
  }

  Status run_step(const Instruction& one) {
    BuildAction action;
    action.line = one.line;
    action.shown = "RUN " + one.text;
    action.env = environment();
    action.cwd = plan_.config.working_dir.empty() ? "/" : plan_.config.working_dir;
    action.user = plan_.config.user;
    if (const auto exec = json_words(one.text); exec && one.heredocs.empty()) {
      if (exec->empty()) return bad("the list is empty");
      action.argv = *exec;
    } else if (one.heredocs.empty()) {
      action.argv = shell_form(one.text);
    } else if (one.heredocs.size() == 1 && one.text.starts_with("<<") &&
               one.text.find_first_of(" \t;|&>") == std::string::npos) {
      return run_script(one, std::move(action));
    } else {
      // The shell reads them as it always does.
      std::string text = one.text + "\n";
      for (const Heredoc& heredoc : one.heredocs) text += heredoc.body + heredoc.name + "\n";
      action.argv = shell_form(text);
    }
    plan_.actions.push_back(std::move(action));
    return {};
  }

  /// The heredoc is the whole command: text for the shell, or a program by its first line.
  Status run_script(const Instruction& one, BuildAction action) {
    const std::string& body = one.heredocs.front().body;
    if (!body.starts_with("#!")) {
      action.argv = shell_form(body);
      plan_.actions.push_back(std::move(action));
      return {};
    }
    BuildAction script;
    script.kind = BuildAction::Kind::kWriteFile;
    script.line = one.line;
    script.path = "/tmp/.drupe-script-" + std::to_string(one.line);
    script.content = body;
    script.mode = 0755;
    action.argv = {script.path};
    BuildAction tidy;
    tidy.line = one.line;
    tidy.argv = {"rm", "-f", script.path};
    tidy.cwd = "/";
    tidy.user = "0";
    plan_.actions.push_back(std::move(script));
    plan_.actions.push_back(std::move(action));
    plan_.actions.push_back(std::move(tidy));
    return {};
  }

  Status set_variable(const std::string& name, std::string value) {
    set_env(plan_.config.env, name, value);
    declared_.insert(name);
    variables_[name] = std::move(value);
    std::size_t bytes = 0;
    for (const std::string& one : plan_.config.env) bytes += one.size();
    if (plan_.config.env.size() > kMostEnv || bytes > kMostEnvBytes)
      return bad("the environment has more than 256 entries or 32 KiB");
    return {};
  }

  Status env(const Instruction& one) {
    DRUPE_ASSIGN(const auto all, words(one.text));
    if (all.front().find('=') == std::string::npos) {
      // "ENV name everything else"
      if (!is_variable_name(all.front())) return bad("there is no name");
      DRUPE_ASSIGN(std::string value,
                   expand(trim_blanks(std::string_view(one.text).substr(all.front().size()))));
      if (all.size() < 2) return bad("there is no value");
      return set_variable(all.front(), std::move(value));
    }
    std::vector<std::pair<std::string, std::string>> set;
    for (const std::string& word : all) {
      const auto equals = word.find('=');
      if (equals == std::string::npos || !is_variable_name(word.substr(0, equals)))
        return bad("it must be NAME=value");
      // All of one instruction see what was before it.
      DRUPE_ASSIGN(std::string value, expand(std::string_view(word).substr(equals + 1)));
      set.emplace_back(word.substr(0, equals), std::move(value));
    }
    for (auto& [name, value] : set) DRUPE_TRY(set_variable(name, std::move(value)));
    return {};
  }

  Status arg(const Instruction& one) {
    DRUPE_ASSIGN(const auto all, words(one.text));
    for (const std::string& word : all) {
      const auto equals = word.find('=');
      const std::string name = word.substr(0, equals);
      if (!is_variable_name(name)) return bad("there is no name");
      std::string value;
      if (equals != std::string::npos) {
        DRUPE_ASSIGN(value, expand(std::string_view(word).substr(equals + 1)));
      } else if (const auto global = globals_.find(name); global != globals_.end()) {
        value = global->second;
      } else {
        continue;  // declared, without a value that anybody could give
      }
      if (arguments_.size() >= kMostEnv) return bad("there are too many");
      if (!declared_.contains(name)) variables_[name] = value;
      arguments_[name] = std::move(value);
    }
    return {};
  }

  Status workdir(const Instruction& one) {
    DRUPE_ASSIGN(const std::string path, expand(one.text));
    if (path.empty()) return bad("the path is empty");
    plan_.config.working_dir = joined(plan_.config.working_dir, path);
    BuildAction action;
    action.kind = BuildAction::Kind::kMakeDirectory;
    action.line = one.line;
    action.shown = "WORKDIR " + plan_.config.working_dir;
    action.path = plan_.config.working_dir;
    plan_.actions.push_back(std::move(action));
    return {};
  }

  Status label(const Instruction& one) {
    DRUPE_ASSIGN(const auto all, words(one.text));
    for (const std::string& word : all) {
      DRUPE_ASSIGN(const std::string text, expand(word));
      const auto equals = text.find('=');
      if (equals == std::string::npos || equals == 0) return bad("it must be name=value");
      if (plan_.config.labels.size() >= kMostEnv) return bad("there are too many");
      plan_.config.labels[text.substr(0, equals)] = text.substr(equals + 1);
    }
    return {};
  }

  Status copy(const Instruction& one) {
    DRUPE_ASSIGN(const auto all, words(one.text));
    BuildAction action;
    action.kind = BuildAction::Kind::kWriteFile;
    action.line = one.line;
    std::vector<std::string> plain;
    for (const std::string& word : all) {
      if (word.starts_with("--chmod=")) {
        const std::string digits = word.substr(8);
        if (digits.empty() || digits.size() > 4 || digits.find_first_not_of("01234567") != std::string::npos)
          return bad("--chmod must be octal");
        action.mode = static_cast<std::uint32_t>(std::stoul(digits, nullptr, 8));
      } else if (word.starts_with("--chown=")) {
        action.owner = word.substr(8);
        if (action.owner.empty() || action.owner.size() > 21 ||
            action.owner.find_first_not_of("0123456789:") != std::string::npos)
          return bad("--chown must be numbers, uid or uid:gid");
      } else if (word.starts_with("--")) {
        return bad("the option " + shown(word) + " is not supported");
      } else {
        plain.push_back(word);
      }
    }
    if (plain.size() != one.heredocs.size() + 1)
      return bad("a build has no context: every source must be a heredoc");
    DRUPE_ASSIGN(std::string target, expand(plain.back()));
    const bool folder = target.ends_with('/');
    if (target.empty() || (one.heredocs.size() > 1 && !folder))
      return bad("the last word must be a path, with '/' at its end for several files");
    target = joined(plan_.config.working_dir, target);
    for (const Heredoc& heredoc : one.heredocs) {
      BuildAction file = action;
      file.path = folder ? target + heredoc.name : target;
      file.shown = one.keyword + " " + file.path;
      file.content = heredoc.body;
      if (heredoc.expand) {
        DRUPE_ASSIGN(file.content, expand_text(heredoc.body, variables_, file_.escape));
      }
      plan_.actions.push_back(std::move(file));
    }
    return {};
  }

  const Dockerfile& file_;
  BuildPlan plan_;
  Variables variables_;                          ///< What $NAME means now.
  Variables globals_;                            ///< Of ARGs before FROM.
  Variables arguments_;                          ///< Of ARGs; also variables of RUN.
  std::set<std::string, std::less<>> declared_;  ///< By ENV, which wins over ARG.
  std::vector<std::string> shell_{"/bin/sh", "-c"};
  bool has_cmd_ = false;
};

}  // namespace

Result<BuildPlan> plan_build(const Dockerfile& file, const ImageConfig& base) {
  return Planner(file, base).run();
}

}  // namespace drupe
