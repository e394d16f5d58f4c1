#include "base/failpoint.h"

#include <csignal>
#include <cstdlib>

#include <gtest/gtest.h>

namespace drupe {
namespace {

// Each in a child: the environment is read once for a process.
TEST(FailpointDeathTest, KillsAtItsNameAlone) {
  const auto pass = [](const char* list, const char* name) {
    ::setenv("DRUPE_FAILPOINT", list, 1);
    failpoint(name);
    std::_Exit(0);
  };
  EXPECT_EXIT(pass("a.b.c", "a.b.c"), testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(pass("x,a.b.c", "a.b.c"), testing::KilledBySignal(SIGKILL), "");
  EXPECT_EXIT(pass("a.b.cd", "a.b.c"), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(pass("", "a.b.c"), testing::ExitedWithCode(0), "");
  EXPECT_EXIT(pass("a.b.c@hypervisor", "a.b.c"), testing::ExitedWithCode(0), "");
}

TEST(FailpointDeathTest, TellsTheHypervisorApart) {
  EXPECT_EXIT(
      {
        ::setenv("DRUPE_FAILPOINT", "a.b.c@hypervisor", 1);
        failpoint("a.b.c", [] { std::_Exit(3); });
        std::_Exit(0);
      },
      testing::ExitedWithCode(3), "");
  EXPECT_EXIT(
      {
        ::unsetenv("DRUPE_FAILPOINT");
        failpoint("a.b.c", [] { std::_Exit(3); });
        std::_Exit(0);
      },
      testing::ExitedWithCode(0), "");
}

}  // namespace
}  // namespace drupe
