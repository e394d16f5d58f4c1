// drupe-bench: every row of the speed and memory table with its yardstick, in one run.
#include <array>
#include <charconv>
#include <cstdio>
#include <string>
#include <string_view>
#include <vector>

#include <fcntl.h>
#include <unistd.h>

#include "base/files.h"
#include "base/ids.h"
#include "bench.h"
#include "guest_work.h"
#include "host_facts.h"

namespace drupe::bench {
namespace {

struct Row {
  std::string_view name;
  RowFunction run;
};

constexpr std::array<Row, 14> kRows{{{"program", row_program},
                                     {"run", row_run},
                                     {"start", row_start},
                                     {"pool", row_pool},
                                     {"ping", row_ping},
                                     {"exec", row_exec},
                                     {"pause", row_pause},
                                     {"fork", row_fork},
                                     {"generations", row_generations},
                                     {"memory", row_memory},
                                     {"bulk", row_bulk},
                                     {"image", row_image},
                                     {"network", row_network},
                                     {"parallel", row_parallel}}};

constexpr const char* kUsage =
    "drupe-bench [--home DIR] [--image NAME] [--json FILE] [--samples N] [--bulk-samples N] [--bulk-mib N]\n"
    "            [--idle-seconds N] [--layer-tar FILE] [--bin DIR] [ROW...]\n"
    "Rows: program run start pool ping exec pause fork generations memory bulk image parallel (default: "
    "all)\n";

struct Arguments {
  Settings settings;
  std::string json;
  std::vector<const Row*> rows;
};

std::string own_directory() {
  std::array<char, 4096> buffer{};
  const ssize_t size = ::readlink("/proc/self/exe", buffer.data(), buffer.size());
  const std::string path(buffer.data(), size > 0 ? static_cast<std::size_t>(size) : 0);
  return path.substr(0, path.rfind('/'));
}

Result<std::uint32_t> number(std::string_view text) {
  std::uint32_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value == 0)
    return fail(ErrorCode::kInvalidArgument, "'" + std::string(text) + "' is not a count");
  return value;
}

Status take_flag(Arguments& arguments, std::string_view flag, std::string_view value) {
  Settings& settings = arguments.settings;
  const std::array<std::pair<std::string_view, std::string*>, 5> texts{
      {{"--home", &settings.home},
       {"--image", &settings.image},
       {"--json", &arguments.json},
       {"--bin", &settings.binary_dir},
       {"--layer-tar", &settings.layer_tar}}};
  for (const auto& [name, target] : texts)
    if (name == flag) {
      *target = value;
      return {};
    }
  const std::array<std::pair<std::string_view, std::uint32_t*>, 4> numbers{
      {{"--samples", &settings.samples},
       {"--bulk-samples", &settings.bulk_samples},
       {"--bulk-mib", &settings.bulk_mib},
       {"--idle-seconds", &settings.idle_seconds}}};
  for (const auto& [name, target] : numbers)
    if (name == flag) {
      DRUPE_ASSIGN(*target, number(value));
      return {};
    }
  return fail(ErrorCode::kInvalidArgument, "Unknown flag " + std::string(flag), kUsage);
}

Result<Arguments> parse(const std::vector<std::string_view>& words) {
  Arguments arguments;
  arguments.settings.tool_dir = own_directory();
  arguments.settings.binary_dir = own_directory() + "/../bin";
  for (std::size_t i = 0; i < words.size(); ++i) {
    if (words[i].starts_with("--")) {
      if (i + 1 == words.size())
        return fail(ErrorCode::kInvalidArgument, std::string(words[i]) + " needs a value", kUsage);
      DRUPE_TRY(take_flag(arguments, words[i], words[i + 1]));
      ++i;
      continue;
    }
    const Row* found = nullptr;
    for (const Row& row : kRows)
      if (row.name == words[i]) found = &row;
    if (found == nullptr)
      return fail(ErrorCode::kInvalidArgument, "Unknown row " + std::string(words[i]), kUsage);
    arguments.rows.push_back(found);
  }
  if (arguments.rows.empty())
    for (const Row& row : kRows) arguments.rows.push_back(&row);
  return arguments;
}

/// Processes and descriptors that the rows left behind; none is the target.
void count_leftovers(Report& report, std::size_t processes, std::size_t descriptors, std::size_t sandboxes,
                     Bench& bench) {
  settle(bench, sandboxes);
  Line line;
  line.row = "leftovers";
  line.what = "processes, descriptors, sandboxes left behind";
  line.unit = "";
  line.target = Target{};
  const auto more = [](std::size_t now, std::size_t before) {
    return now > before ? static_cast<double>(now - before) : 0;
  };
  line.samples = {more(machine_processes(), processes) + more(count_entries("/proc/self/fd"), descriptors) +
                  more(count_sandboxes(bench), sandboxes)};
  report.add(std::move(line));
}

Result<int> run(Arguments arguments) {
  Settings& settings = arguments.settings;
  EngineOptions options;
  options.home = settings.home;
  options.binary_dir = settings.binary_dir;
  options.on_note = [](std::string_view text) {
    std::fprintf(stderr, "note: %.*s\n", static_cast<int>(text.size()), text.data());
  };
  DRUPE_ASSIGN(const auto engine, Engine::open(options));
  settings.scratch = engine->home() + "/bench-" + random_id();
  DRUPE_TRY(make_dirs(settings.scratch));
  Report report;
  const CpuMeter cpu;
  Bench bench{settings, *engine, report, cpu};
  auto facts = machine_facts();
  // What the engine opens once and keeps is no leftover.
  DRUPE_TRY(engine->images());
  DRUPE_TRY(engine->list());
  const std::size_t processes = machine_processes();
  const std::size_t descriptors = count_entries("/proc/self/fd");
  const std::size_t sandboxes = count_sandboxes(bench);
  for (const Row* row : arguments.rows) {
    std::fprintf(stderr, "-- %.*s (load %.1f)\n", static_cast<int>(row->name.size()), row->name.data(),
                 load_average());
    if (auto done = row->run(bench); !done) report.fail(std::string(row->name), done.error());
  }
  count_leftovers(report, processes, descriptors, sandboxes, bench);
  report.print_table();
  DRUPE_TRY(remove_tree(AT_FDCWD, settings.scratch));
  facts.emplace_back("load at end", std::to_string(load_average()));
  if (!arguments.json.empty())
    DRUPE_TRY(replace_file(AT_FDCWD, arguments.json, report.json(facts), Sync::kNo, 0644));
  bool good = report.failures().empty();
  for (const Line& line : report.lines())
    if (line.target && !passes(line)) good = false;
  return good ? 0 : 1;
}

}  // namespace
}  // namespace drupe::bench

int main(int argc, char** argv) {
  using namespace drupe;
  auto arguments = bench::parse(std::vector<std::string_view>(argv + 1, argv + argc));
  auto status =
      arguments ? bench::run(*std::move(arguments)) : Result<int>(std::unexpected(arguments.error()));
  if (status) return *status;
  std::fprintf(stderr, "drupe-bench: %s\n", to_string(status.error()).c_str());
  return 2;
}
