#include "hypervisor/kvm_probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/event_loop.h"

namespace drupe {
namespace {

using std::chrono::milliseconds;
using ::testing::HasSubstr;

TEST(KvmProbe, AMissingDeviceIsAbsent) {
  const KvmProbe probe = probe_kvm("/dev/no-such-kvm", milliseconds(500));
  EXPECT_EQ(probe.verdict, KvmVerdict::kAbsent);
  EXPECT_THAT(probe.reason, HasSubstr("No such file"));
  EXPECT_FALSE(probe.next_step.empty());
}

TEST(KvmProbe, ADeviceThatOpensProvesNothing) {
  const KvmProbe probe = probe_kvm("/dev/null", milliseconds(500));
  EXPECT_EQ(probe.verdict, KvmVerdict::kUnusable);
  EXPECT_THAT(probe.reason, HasSubstr("KVM_GET_API_VERSION"));
}

TEST(KvmProbe, TheVerdictOnThisHostHasAReasonAndComesInTime) {
  const auto start = Clock::now();
  const KvmProbe probe = probe_kvm("/dev/kvm", milliseconds(2000));
  EXPECT_LT(Clock::now() - start, milliseconds(10'000));
  EXPECT_EQ(probe.reason.empty(), probe.verdict == KvmVerdict::kUsable) << probe.reason;
  if (probe.verdict == KvmVerdict::kUsable) {
    EXPECT_GT(probe.loop_ns, 0);
  }
}

}  // namespace
}  // namespace drupe
