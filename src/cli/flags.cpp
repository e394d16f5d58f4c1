#include "cli/flags.h"

#include <algorithm>

namespace drupe::cli {

FlagSet::FlagSet(std::string usage, std::string summary)
    : usage_(std::move(usage)), summary_(std::move(summary)) {}

FlagSet& FlagSet::add(std::string_view names, std::string value_name,
                      std::function<Status(std::string_view)> take, std::string help) {
  Flag flag;
  if (names.size() >= 2 && names[0] == '-' && names[1] != '-') {
    flag.short_name = names[1];
    names.remove_prefix(std::min<std::size_t>(names.size(), 4));  // "-x, "
  }
  if (names.starts_with("--")) flag.long_name = names.substr(2);
  flag.value_name = std::move(value_name);
  flag.help = std::move(help);
  flag.take = std::move(take);
  flags_.push_back(std::move(flag));
  return *this;
}

FlagSet& FlagSet::flag(std::string_view names, bool& target, std::string help) {
  return add(
      names, "",
      [&target](std::string_view value) -> Status {
        // Docker's users write --rm=false as well as --rm.
        if (value == "true" || value.empty()) {
          target = true;
        } else if (value == "false") {
          target = false;
        } else {
          return fail(ErrorCode::kInvalidArgument, "takes true or false, not '" + std::string(value) + "'");
        }
        return {};
      },
      std::move(help));
}

FlagSet& FlagSet::text(std::string_view names, std::string value_name, std::string& target,
                       std::string help) {
  return add(
      names, std::move(value_name),
      [&target](std::string_view value) -> Status {
        target = value;
        return {};
      },
      std::move(help));
}

FlagSet& FlagSet::list(std::string_view names, std::string value_name, std::vector<std::string>& target,
                       std::string help) {
  return add(
      names, std::move(value_name),
      [&target](std::string_view value) -> Status {
        target.emplace_back(value);
        return {};
      },
      std::move(help));
}

FlagSet& FlagSet::value(std::string_view names, std::string value_name,
                        std::function<Status(std::string_view)> take, std::string help) {
  return add(names, std::move(value_name), std::move(take), std::move(help));
}

FlagSet& FlagSet::refused(std::string_view names, bool takes_value, std::string sentence) {
  return add(
      names, takes_value ? "VALUE" : "",
      [sentence = std::move(sentence)](std::string_view) -> Status {
        return fail(ErrorCode::kUnsupported, sentence);
      },
      "");
}

FlagSet::Flag* FlagSet::find_long(std::string_view name) {
  const auto found =
      std::find_if(flags_.begin(), flags_.end(), [name](const Flag& flag) { return flag.long_name == name; });
  return found == flags_.end() || name.empty() ? nullptr : &*found;
}

FlagSet::Flag* FlagSet::find_short(char name) {
  const auto found = std::find_if(flags_.begin(), flags_.end(),
                                  [name](const Flag& flag) { return flag.short_name == name; });
  return found == flags_.end() ? nullptr : &*found;
}

Error FlagSet::unknown(std::string_view flag) const {
  const std::string command = usage_.substr(0, usage_.find_first_of(" ["));
  return {ErrorCode::kInvalidArgument,
          "There is no flag " + std::string(flag) + " for 'drupe " + command + "'",
          "'drupe " + command + " --help' lists the flags", 0};
}

Status FlagSet::parse_long(const std::vector<std::string>& arguments, std::size_t& at) {
  const std::string_view whole = arguments[at];
  const auto equals = whole.find('=');
  const std::string_view name = whole.substr(2, equals == std::string_view::npos ? equals : equals - 2);
  if (name == "help") {
    wants_help_ = true;
    return {};
  }
  Flag* flag = find_long(name);
  if (flag == nullptr) return std::unexpected(unknown("--" + std::string(name)));
  std::string_view value;
  if (equals != std::string_view::npos) {
    value = whole.substr(equals + 1);
  } else if (!flag->value_name.empty()) {
    if (at + 1 >= arguments.size())
      return fail(ErrorCode::kInvalidArgument,
                  "--" + flag->long_name + " needs a value (" + flag->value_name + ")");
    value = arguments[++at];
  }
  if (auto taken = flag->take(value); !taken)
    return std::unexpected(std::move(taken).error().in("--" + flag->long_name));
  return {};
}

Status FlagSet::parse_short(const std::vector<std::string>& arguments, std::size_t& at) {
  const std::string_view whole = arguments[at];
  for (std::size_t i = 1; i < whole.size(); ++i) {
    Flag* flag = find_short(whole[i]);
    if (flag == nullptr && whole[i] == 'h') {
      wants_help_ = true;
      return {};
    }
    if (flag == nullptr) return std::unexpected(unknown("-" + std::string(1, whole[i])));
    std::string_view value;
    if (!flag->value_name.empty()) {
      if (i + 1 < whole.size()) {
        value = whole.substr(i + 1);
        if (value.front() == '=') value.remove_prefix(1);
        i = whole.size();
      } else if (at + 1 < arguments.size()) {
        value = arguments[++at];
      } else {
        return fail(ErrorCode::kInvalidArgument,
                    "-" + std::string(1, flag->short_name) + " needs a value (" + flag->value_name + ")");
      }
    }
    if (auto taken = flag->take(value); !taken)
      return std::unexpected(std::move(taken).error().in("-" + std::string(1, flag->short_name)));
  }
  return {};
}

Result<std::vector<std::string>> FlagSet::parse(const std::vector<std::string>& arguments, Words words) {
  std::vector<std::string> plain;
  for (std::size_t at = 0; at < arguments.size() && !wants_help_; ++at) {
    const std::string& argument = arguments[at];
    if (argument == "--") {
      plain.insert(plain.end(), arguments.begin() + static_cast<std::ptrdiff_t>(at) + 1, arguments.end());
      break;
    }
    if (argument.starts_with("--")) {
      DRUPE_TRY(parse_long(arguments, at));
    } else if (argument.size() > 1 && argument[0] == '-') {
      DRUPE_TRY(parse_short(arguments, at));
    } else if (words == Words::kFirstEndsFlags) {
      plain.insert(plain.end(), arguments.begin() + static_cast<std::ptrdiff_t>(at), arguments.end());
      break;
    } else {
      plain.push_back(argument);
    }
  }
  return plain;
}

std::string FlagSet::help() const {
  std::string out = "Usage: drupe " + usage_ + "\n\n" + summary_ + "\n";
  std::vector<std::pair<std::string, const std::string*>> rows;
  std::size_t width = 0;
  for (const Flag& flag : flags_) {
    if (flag.help.empty()) continue;
    std::string left = flag.short_name != 0 ? std::string("-") + flag.short_name : "  ";
    if (!flag.long_name.empty()) left += (flag.short_name != 0 ? ", --" : "  --") + flag.long_name;
    if (!flag.value_name.empty()) left += " " + flag.value_name;
    width = std::max(width, left.size());
    rows.emplace_back(std::move(left), &flag.help);
  }
  if (!rows.empty()) out += "\nFlags:\n";
  for (const auto& [left, text] : rows)
    out += "  " + left + std::string(width - left.size() + 3, ' ') + *text + "\n";
  return out;
}

}  // namespace drupe::cli
