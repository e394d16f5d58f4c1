// drupe-bench-clone PRELOAD TSC_KHZ IMAGE NODE RAM STATE TOP MEMORY_MIB COMMAND [ARGUMENT...]: one command in
// a bare clone.
#include <cstdio>
#include <cstdlib>

#include <unistd.h>

#include "bare_clone.h"
#include "base/files.h"
#include "hypervisor/qemu/qemu.h"

namespace {

constexpr int kFixed = 9;

drupe::Result<int> run(int argc, char** argv) {
  using namespace drupe;
  QemuOptions options;
  options.program = qemu_program();
  options.preload = argv[1];
  options.tsc_khz = std::strtoull(argv[2], nullptr, 10);
  DRUPE_ASSIGN(const auto loop, EventLoop::create());
  DRUPE_ASSIGN(const auto hypervisor, make_qemu_hypervisor(options));
  bench::CloneFiles files;
  files.image = argv[3];
  files.node = argv[4];
  files.ram = argv[5];
  files.state = argv[6];
  files.top = argv[7];
  files.memory_mib = static_cast<std::uint32_t>(std::strtoul(argv[8], nullptr, 10));
  DRUPE_ASSIGN(const auto clone, bench::BareClone::start(*loop, *hypervisor, files));
  std::string out;
  DRUPE_ASSIGN(const int code, clone->run(std::vector<std::string>(argv + kFixed, argv + argc), out));
  DRUPE_TRY(write_all(STDOUT_FILENO, out));
  // The machine ends after this process, as it does after `drupe run`.
  clone->kill();
  std::_Exit(code);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc <= kFixed) return 2;
  const auto code = run(argc, argv);
  std::fprintf(stderr, "drupe-bench-clone: %s\n", code ? "?" : drupe::to_string(code.error()).c_str());
  return 125;
}
