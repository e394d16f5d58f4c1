// What every row of the benchmark works with.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "engine/engine.h"
#include "host_facts.h"
#include "report.h"

namespace drupe::bench {

struct Settings {
  std::string image = "devbox:1";
  std::string home;        ///< Empty: as the engine chooses.
  std::string binary_dir;  ///< Of drupe and drupe-shim.
  std::string tool_dir;    ///< Of the benchmark's own programs: guest programs and the bare clone.
  std::string scratch;     ///< Directory for files of the benchmark, on the home's file system.
  std::string
      layer_tar;  ///< A tar of a root file system for the image row; empty: made from this host's /usr.
  std::uint32_t samples = 50;
  std::uint32_t bulk_samples = 5;
  std::uint32_t bulk_mib = 1024;
  std::uint32_t idle_seconds = 60;
};

struct Bench {
  const Settings& settings;
  Engine& engine;
  Report& report;
  const CpuMeter& cpu;
};

/// One row of the table; adds lines to the report.
using RowFunction = Status (*)(Bench& bench);

Status row_run(Bench& bench);
Status row_start(Bench& bench);
Status row_pool(Bench& bench);
Status row_ping(Bench& bench);
Status row_exec(Bench& bench);
Status row_pause(Bench& bench);
Status row_fork(Bench& bench);
Status row_generations(Bench& bench);
Status row_memory(Bench& bench);
Status row_bulk(Bench& bench);
Status row_image(Bench& bench);
Status row_network(Bench& bench);
Status row_parallel(Bench& bench);
Status row_program(Bench& bench);

[[nodiscard]] inline double ms_since(Clock::time_point begun) {
  return std::chrono::duration<double, std::milli>(Clock::now() - begun).count();
}

}  // namespace drupe::bench
