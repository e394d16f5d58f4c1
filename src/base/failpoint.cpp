#include "base/failpoint.h"

#include <csignal>
#include <cstdlib>

#include <unistd.h>

namespace drupe {
namespace {

constexpr std::string_view kHypervisor = "@hypervisor";

bool chosen(std::string_view list, std::string_view name, std::string_view suffix) {
  while (!list.empty()) {
    const auto comma = list.find(',');
    std::string_view entry = list.substr(0, comma);
    list = comma == std::string_view::npos ? std::string_view() : list.substr(comma + 1);
    if (!entry.ends_with(suffix)) continue;
    entry.remove_suffix(suffix.size());
    if (entry == name) return true;
  }
  return false;
}

}  // namespace

void failpoint(std::string_view name, const std::function<void()>& kill_hypervisor) {
  static const char* const list = std::getenv("DRUPE_FAILPOINT");
  if (list == nullptr) return;
  if (kill_hypervisor && chosen(list, name, kHypervisor)) kill_hypervisor();
  if (chosen(list, name, {})) ::kill(::getpid(), SIGKILL);
}

}  // namespace drupe
