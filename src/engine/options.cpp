#include "engine/options.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <unordered_map>

#include "engine/host_trust.h"
#include "engine/names.h"
#include "image/config.h"

namespace drupe {
namespace {

constexpr double kLeastCpus = 0.01;
constexpr std::uint32_t kMostCpus = 32;
constexpr std::size_t kLongestPath = 4095;
constexpr std::size_t kLongestUser = 256;
constexpr std::size_t kLongestHostname = 64;
constexpr std::size_t kMostLabels = 64;
constexpr std::size_t kLongestLabelKey = 256;
constexpr std::size_t kLongestLabelValue = 4096;
constexpr std::uint64_t kLongestTimeMs = std::uint64_t{1000} * 60 * 60 * 24 * 3650;

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool has_zero(std::string_view text) {
  return text.find('\0') != std::string_view::npos;
}
bool has_control(std::string_view text) {
  return std::ranges::any_of(text, [](char c) { return static_cast<unsigned char>(c) < 32 || c == 127; });
}

/// The beginning of a hostile or huge text, safe to print in a sentence.
std::string quoted(std::string_view text) {
  constexpr std::size_t kShown = 64;
  std::string out = "\"";
  for (const char c : text.substr(0, kShown)) out += has_control({&c, 1}) ? '?' : c;
  return out + (text.size() > kShown ? "...\"" : "\"");
}

std::string decimal(double value) {
  char text[32];
  std::snprintf(text, sizeof(text), "%.10g", value);
  return text;
}

Status check_cpus(double cpus, std::uint32_t host_cpus) {
  const double most = std::min(kMostCpus, std::max(host_cpus, 1U));
  if (cpus >= kLeastCpus && cpus <= most) return {};
  return fail(ErrorCode::kInvalidArgument,
              decimal(cpus) + " CPUs cannot be given: this machine allows " + decimal(kLeastCpus) + " to " +
                  decimal(most),
              "Choose a number in this range with --cpus.");
}

Status check_memory(std::uint64_t mib) {
  if (mib >= kLeastMemoryMib && mib <= kMostMemoryMib) return {};
  return fail(ErrorCode::kInvalidArgument,
              std::to_string(mib) + " MiB of memory cannot be given: a sandbox has 256 MiB to 64 GiB",
              "Choose a size in this range, for example --memory 512m.");
}

Status check_hostname(const std::string& name) {
  if (name.empty()) return {};
  const bool good =
      name.size() <= kLongestHostname && name.front() != '-' && name.front() != '.' && name.back() != '-' &&
      std::ranges::all_of(name, [](char c) { return is_letter(c) || is_digit(c) || c == '-' || c == '.'; });
  if (good) return {};
  return fail(ErrorCode::kInvalidArgument, "The host name " + quoted(name) + " cannot be used",
              "Host names have 1 to 64 letters, digits, '-' and '.', and begin with a letter or digit.");
}

Status check_labels(const std::map<std::string, std::string>& labels) {
  if (labels.size() > kMostLabels)
    return fail(ErrorCode::kInvalidArgument,
                std::to_string(labels.size()) + " labels are more than the 64 a sandbox can have");
  for (const auto& [key, value] : labels) {
    if (key.empty() || key.size() > kLongestLabelKey || has_control(key))
      return fail(ErrorCode::kInvalidArgument, "The label " + quoted(key) + " cannot be used",
                  "Label keys have 1 to 256 printable characters.");
    if (value.size() > kLongestLabelValue || has_zero(value))
      return fail(ErrorCode::kInvalidArgument,
                  "The value of the label " + quoted(key) + " is longer than 4096 bytes");
  }
  return {};
}

Status check_place(const std::string& cwd, const std::string& user) {
  if (!cwd.empty() && (cwd.front() != '/' || cwd.size() > kLongestPath || has_zero(cwd)))
    return fail(ErrorCode::kInvalidArgument, "The working directory " + quoted(cwd) + " cannot be used",
                "It must be an absolute path in the sandbox of at most 4095 bytes.");
  if (user.size() > kLongestUser || has_control(user) || std::ranges::count(user, ':') > 1)
    return fail(ErrorCode::kInvalidArgument, "The user " + quoted(user) + " cannot be used",
                "Write name, uid, name:group or uid:gid.");
  return {};
}

Status check_string(std::string_view text, std::string_view what) {
  if (has_zero(text))
    return fail(ErrorCode::kInvalidArgument,
                "An " + std::string(what) + " holds a zero byte: " + quoted(text));
  if (text.size() < kMostStringBytes) return {};
  return fail(ErrorCode::kInvalidArgument,
              "One " + std::string(what) + " has " + std::to_string(text.size()) +
                  " bytes; the guest's kernel takes at most 131071 in one",
              "Give long data on standard input or as a file (drupe cp).");
}

Status check_total(const std::vector<std::string>& argv, const std::vector<std::string>& env) {
  constexpr std::size_t kPerString = 9;
  std::size_t total = 0;
  for (const auto& text : argv) total += text.size() + kPerString;
  for (const auto& text : env) total += text.size() + kPerString;
  if (total <= kMostArgumentBytes) return {};
  return fail(ErrorCode::kInvalidArgument,
              "Arguments and environment have " + std::to_string(total) +
                  " bytes; the guest's kernel takes at most " + std::to_string(kMostArgumentBytes),
              "Give long data on standard input or as a file (drupe cp).");
}

Status check_argv(const std::vector<std::string>& argv) {
  for (const auto& text : argv) DRUPE_TRY(check_string(text, "argument"));
  return {};
}

Status check_time(std::uint64_t ms, std::string_view what) {
  if (ms <= kLongestTimeMs) return {};
  return fail(ErrorCode::kInvalidArgument, "The " + std::string(what) + " is longer than ten years");
}

std::string_view key_of(std::string_view entry) {
  return entry.substr(0, entry.find('='));
}

std::size_t bytes_of(const std::vector<std::string>& env) {
  std::size_t total = 0;
  for (const auto& entry : env) total += entry.size() + 4;
  return total;
}

Status apply_disk(SandboxRecord& record, std::uint64_t asked, std::uint64_t image_disk_bytes) {
  record.disk_bytes = asked == 0 ? std::max(kDefaultDiskBytes, image_disk_bytes) : asked;
  record.disk_bytes = (record.disk_bytes + 4095) / 4096 * 4096;
  if (record.disk_bytes >= image_disk_bytes) return {};
  return fail(ErrorCode::kInvalidArgument,
              "A disk of " + std::to_string(asked >> 20) + " MiB is smaller than the image's, which has " +
                  std::to_string(image_disk_bytes >> 20) + " MiB",
              "Leave --disk away, or give at least that size.");
}

/// ENTRYPOINT and CMD as Docker combines them.
std::vector<std::string> main_argv(const SandboxOptions& options, const ImageConfig& config) {
  std::vector<std::string> argv = options.entrypoint ? *options.entrypoint : config.entrypoint;
  std::erase(argv, "");  // `--entrypoint ""` arrives as one empty word and means none
  if (!options.command.empty())
    argv.insert(argv.end(), options.command.begin(), options.command.end());
  else if (!options.entrypoint)
    argv.insert(argv.end(), config.cmd.begin(), config.cmd.end());
  return argv;
}

/// What the image sets wins over the variables that name the host's certificate authorities.
std::vector<std::string> image_env(const SandboxOptions& options, const ImageConfig& config) {
  return options.host_ca ? merge_env(trust_variables(), config.env) : config.env;
}

Status apply_main(SandboxRecord& record, const SandboxOptions& options, const ImageConfig& config) {
  record.main.reset();
  if (options.idle) return {};
  ExecOptions main;
  main.argv = main_argv(options, config);
  if (main.argv.empty())
    return fail(ErrorCode::kInvalidArgument, "The image " + options.image + " names no command to run",
                "Write one after the image, for example: drupe run " + options.image + " sh");
  main.exec_id = "main";
  main.tty = options.tty;
  main.rows = options.rows;
  main.columns = options.columns;
  main.stdin_open = options.stdin_open;
  main.keep_on_reset = true;  // it belongs to the sandbox, not to a client
  main.timeout_ms = options.timeout_ms;
  if (bytes_of(record.image_env) > kMostDefaultEnvBytes) {
    record.image_env = image_env(options, config);
    main.env = options.env;
  }
  DRUPE_TRY(check_argv(main.argv));
  DRUPE_TRY(check_total(main.argv, merge_env(record.image_env, main.env)));
  record.main = std::move(main);
  return {};
}

}  // namespace

Status check_env(const std::vector<std::string>& env) {
  for (const std::string& entry : env) {
    const std::string_view key = key_of(entry);
    const bool good =
        !key.empty() && !is_digit(key.front()) && key.front() != '.' && key.front() != '-' &&
        key.size() < entry.size() &&
        std::ranges::all_of(
            key, [](char c) { return is_letter(c) || is_digit(c) || c == '_' || c == '.' || c == '-'; });
    if (!good)
      return fail(
          ErrorCode::kInvalidArgument, "The environment variable " + quoted(key) + " cannot be set",
          "Write KEY=value; keys are letters, digits, '_', '.' and '-' and do not begin with a digit.");
    DRUPE_TRY(check_string(entry, "environment variable"));
  }
  return {};
}

Status check_exec(const ExecOptions& options) {
  if (options.argv.empty() || options.argv.front().empty())
    return fail(ErrorCode::kInvalidArgument, "There is no command to run",
                "Write one, for example: drupe exec NAME sh");
  DRUPE_TRY(check_argv(options.argv));
  DRUPE_TRY(check_env(options.env));
  DRUPE_TRY(check_total(options.argv, options.env));
  DRUPE_TRY(check_place(options.cwd, options.user));
  return check_time(options.timeout_ms, "timeout");
}

Status check_options(const SandboxOptions& options, std::uint32_t host_cpus) {
  if (options.image.empty())
    return fail(ErrorCode::kInvalidArgument, "No image is named", "drupe images lists those that are here.");
  if (!options.name.empty()) DRUPE_TRY(check_name(options.name));
  DRUPE_TRY(check_cpus(options.cpus, host_cpus));
  DRUPE_TRY(check_memory(options.memory_mib));
  if (options.disk_bytes > kMostDiskBytes)
    return fail(ErrorCode::kInvalidArgument, "A disk can have at most 1 TiB", "Choose a smaller --disk.");
  DRUPE_TRY(check_labels(options.labels));
  DRUPE_TRY(check_hostname(options.hostname));
  DRUPE_TRY(check_place(options.cwd, options.user));
  DRUPE_TRY(check_env(options.env));
  DRUPE_TRY(check_argv(options.command));
  if (options.entrypoint) DRUPE_TRY(check_argv(*options.entrypoint));
  DRUPE_TRY(check_total(options.command, options.env));
  DRUPE_TRY(check_time(options.timeout_ms, "timeout"));
  DRUPE_TRY(check_time(options.idle_timeout_ms, "idle timeout"));
  return check_time(options.max_lifetime_ms, "lifetime");
}

MachineShape shape_for(double cpus, std::uint64_t memory_mib) {
  MachineShape shape;
  shape.vcpus = static_cast<std::uint32_t>(std::clamp(std::ceil(cpus), 1.0, double{kMostCpus}));
  shape.memory_mib =
      static_cast<std::uint32_t>((memory_mib + kMemoryStepMib - 1) / kMemoryStepMib * kMemoryStepMib);
  return shape;
}

std::vector<std::string> merge_env(const std::vector<std::string>& image,
                                   const std::vector<std::string>& own) {
  std::vector<std::string> merged;
  std::unordered_map<std::string, std::size_t> place;
  for (const auto* list : {&image, &own})
    for (const std::string& entry : *list) {
      const auto [found, added] = place.try_emplace(std::string(key_of(entry)), merged.size());
      if (added)
        merged.push_back(entry);
      else
        merged[found->second] = entry;
    }
  return merged;
}

Status apply_image(SandboxRecord& record, const SandboxOptions& options, const ImageConfig& config,
                   std::uint64_t image_disk_bytes) {
  record.labels = options.labels;
  record.cpus = options.cpus;
  record.shape = shape_for(options.cpus, options.memory_mib);
  record.host_ca = options.host_ca;
  record.self_control = options.self_control;
  record.image_env = merge_env(image_env(options, config), options.env);
  record.image_user = options.user.empty() ? config.user : options.user;
  record.image_cwd = options.cwd.empty() ? config.working_dir : options.cwd;
  record.stop_signal = config.stop_signal;
  record.detached = options.detached;
  record.auto_remove = options.auto_remove;
  record.idle_timeout_ms = options.idle_timeout_ms;
  record.max_lifetime_ms = options.max_lifetime_ms;
  if (bytes_of(config.env) > kMostDefaultEnvBytes)
    return fail(ErrorCode::kLimit,
                "The environment of the image " + options.image + " is larger than 40000 bytes");
  DRUPE_TRY(apply_disk(record, options.disk_bytes, image_disk_bytes));
  DRUPE_TRY(apply_main(record, options, config));
  if (bytes_of(record.image_env) > kMostDefaultEnvBytes)
    return fail(ErrorCode::kLimit, "The environment of a sandbox without a command is limited to 40000 bytes",
                "Give the variables to each command: drupe exec -e.");
  return {};
}

}  // namespace drupe
