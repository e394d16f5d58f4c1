// Named moments at which a crash test ends a process. Compiled into every build, because the moments must be
// those of the shipped programs; without DRUPE_FAILPOINT in the environment a failpoint is one comparison.
#pragma once

#include <functional>
#include <string_view>

namespace drupe {

/// With DRUPE_FAILPOINT=NAME this process is killed (SIGKILL) when it passes the failpoint NAME; with
/// NAME@hypervisor `kill_hypervisor` is called instead, if there is one. Several, separated by commas. The
/// names are those in docs/states.md.
void failpoint(std::string_view name, const std::function<void()>& kill_hypervisor = {});

}  // namespace drupe
