// What tests of a real shim with a real guest share.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "shim/testing/shim_process.h"

namespace drupe::testing {

inline constexpr auto kPause = static_cast<std::uint16_t>(ShimRequest::kPause);
inline constexpr auto kStop = static_cast<std::uint16_t>(ShimRequest::kStop);
inline constexpr auto kSnapshot = static_cast<std::uint16_t>(ShimRequest::kSnapshot);
inline constexpr auto kInfo = static_cast<std::uint16_t>(ShimRequest::kInfo);

inline Deadline soon() {
  return Clock::now() + std::chrono::seconds(60);
}

class ShimGuest : public ::testing::Test {
 protected:
  static void SetUpTestSuite() {
    if (!GuestAssets::unavailable().empty()) return;
    loop_ = EventLoop::create().value().release();
  }
  void SetUp() override {
    if (const std::string why = GuestAssets::unavailable(); !why.empty()) GTEST_SKIP() << why;
  }

  static void TearDownTestSuite() { base_.reset(); }

  // The base snapshot that most tests start from, made by the first that needs it.
  static ShimProcess& base() {
    if (base_) return *base_;
    auto shim = ShimProcess::create(*loop_);
    EXPECT_TRUE(shim);
    (*shim)->record.disk_chain.emplace_back(kBaseDiskFile);
    (*shim)->spec.exercise = {"true", "echo warm", "exit 3"};
    const auto status = (*shim)->start(LaunchMode::kMakeBase);
    EXPECT_TRUE(status) << status.error().message;
    EXPECT_FALSE(status->error) << status->error->message;
    EXPECT_EQ((*shim)->wait().value_or(-1), 0);
    base_ = std::move(*shim);
    return *base_;
  }

  static std::unique_ptr<ShimProcess> from_base(const std::vector<std::string>& main = {}) {
    auto shim = ShimProcess::create(*loop_);
    EXPECT_TRUE(shim);
    EXPECT_TRUE((*shim)->use_base(base()));
    if (!main.empty()) {
      (*shim)->record.main.emplace();
      (*shim)->record.main->exec_id = "main";
      (*shim)->record.main->argv = main;
    }
    return std::move(*shim);
  }
  static void must_start(ShimProcess& shim, LaunchMode mode) {
    const auto status = shim.start(mode);
    ASSERT_TRUE(status) << status.error().message;
    ASSERT_FALSE(status->error) << status->error->message;
    for (const auto& [stage, ms] : status->timings) RecordProperty(stage, std::to_string(ms));
  }

  static inline EventLoop* loop_ = nullptr;
  static inline std::unique_ptr<ShimProcess> base_;
};

struct Attached {
  std::string out;
  std::optional<ExitFacts> facts;
  std::optional<Error> error;
  [[nodiscard]] bool ended() const { return facts || error; }
};

inline ShimClient::StreamId attach(ShimClient& client, Attached& into, bool with_stdin = false) {
  OpenRequest request;
  request.kind = OpenKind::kAttach;
  request.exec.exec_id = "main";
  request.exec.stdin_open = with_stdin;
  StreamHandler handler;
  handler.on_data = [&into](Channel, std::string_view bytes) { into.out += bytes; };
  handler.on_exit = [&into](const ExitFacts& facts) { into.facts = facts; };
  handler.on_error = [&into](const Error& error) { into.error = error; };
  return client.open(request, std::move(handler)).value_or(0);
}

inline int hypervisor_pid(ShimClient& client) {
  const auto bytes = client.call(kInfo, {}, soon());
  EXPECT_TRUE(bytes);
  const auto info = ShimInfo::decode(as_bytes(*bytes));
  EXPECT_TRUE(info);
  return info->hypervisor_pid;
}

}  // namespace drupe::testing
