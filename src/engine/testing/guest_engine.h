// An engine with real guests: a home of its own and one image around a static busybox.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "engine/engine.h"

namespace drupe {

class GuestEngineTest : public testing::Test {
 protected:
  static constexpr const char* kImage = "busybox:test";

  /// One home for all tests of the program, so that its image boots once.
  static void SetUpTestSuite();
  static void TearDownTestSuite();
  void SetUp() override;
  /// Fails when a sandbox or something half-made is left.
  void TearDown() override;

  [[nodiscard]] Engine& engine() { return *engine_; }
  [[nodiscard]] static EngineOptions engine_options();
  [[nodiscard]] static SandboxOptions sandbox_options();
  /// A started sandbox without a main command that goes with this process.
  std::string make_sandbox(const std::string& name = {});
  /// Standard output of a shell line; an exit status other than 0 fails the test.
  std::string sh(const std::string& id, const std::string& line);
  std::string state(const std::string& id);
  /// Kills the process that holds the sandbox's lock.
  void kill_shim(const std::string& id);

  std::unique_ptr<Engine> engine_;
  std::vector<std::string> notes_;

 private:
  static inline std::string home_;
  static inline std::string unavailable_;
};

}  // namespace drupe
