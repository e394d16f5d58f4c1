// Command-line flags as Docker's users know them: short flags may be joined (-it), values follow or are
// attached (-eA=1,
// --env=A=1), and for commands that run a program everything after the first plain word belongs to that
// program. Arguments are bytes.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace drupe::cli {

enum class Words : std::uint8_t {
  kAnywhere,       ///< Plain words and flags may alternate; "--" ends the flags.
  kFirstEndsFlags  ///< The first plain word ends the flags: `run IMAGE COMMAND -x`.
};

/// The flags of one command. Borrows the variables it fills.
class FlagSet {
 public:
  /// `usage` is what follows "drupe ", e.g. "rm [FLAGS] SANDBOX...".
  FlagSet(std::string usage, std::string summary);

  // `names` is "-x, --long", "--long" or "-x".
  FlagSet& flag(std::string_view names, bool& target, std::string help);
  FlagSet& text(std::string_view names, std::string value_name, std::string& target, std::string help);
  FlagSet& list(std::string_view names, std::string value_name, std::vector<std::string>& target,
                std::string help);
  /// Calls `take` with each value; its error is reported with the flag's name in front.
  FlagSet& value(std::string_view names, std::string value_name, std::function<Status(std::string_view)> take,
                 std::string help);
  /// A flag that other tools have and this one does not: its use is kUnsupported with `sentence`.
  FlagSet& refused(std::string_view names, bool takes_value, std::string sentence);

  /// Reads `arguments` (without the command's name) and returns the plain words. kInvalidArgument for an
  /// unknown flag, a missing value or a value where none belongs. When --help is among the flags,
  /// wants_help() is true and the rest was not read.
  Result<std::vector<std::string>> parse(const std::vector<std::string>& arguments,
                                         Words words = Words::kAnywhere);
  [[nodiscard]] bool wants_help() const { return wants_help_; }
  [[nodiscard]] std::string help() const;
  [[nodiscard]] const std::string& usage() const { return usage_; }

 private:
  struct Flag {
    char short_name = 0;
    std::string long_name;
    std::string value_name;  ///< Empty: takes no value.
    std::string help;        ///< Empty: not shown.
    std::function<Status(std::string_view)> take;
  };
  FlagSet& add(std::string_view names, std::string value_name, std::function<Status(std::string_view)> take,
               std::string help);
  Flag* find_long(std::string_view name);
  Flag* find_short(char name);
  [[nodiscard]] Error unknown(std::string_view flag) const;
  Status parse_long(const std::vector<std::string>& arguments, std::size_t& at);
  Status parse_short(const std::vector<std::string>& arguments, std::size_t& at);

  std::string usage_, summary_;
  std::vector<Flag> flags_;
  bool wants_help_ = false;
};

}  // namespace drupe::cli
