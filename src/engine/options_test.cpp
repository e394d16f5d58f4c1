#include "engine/options.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "image/config.h"

namespace drupe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

SandboxOptions good() {
  SandboxOptions options;
  options.image = "devbox:1";
  return options;
}

/// Expects a refusal that names the cause and the next step.
void expect_refused(const SandboxOptions& options, const std::string& part) {
  const auto checked = check_options(options, 2);
  ASSERT_FALSE(checked) << part;
  EXPECT_EQ(checked.error().code, ErrorCode::kInvalidArgument);
  EXPECT_THAT(to_string(checked.error()), HasSubstr(part));
}

TEST(Options, DefaultsAreGood) {
  EXPECT_TRUE(check_options(good(), 1));
}

TEST(Options, RefusesEachBadValueWithASentence) {
  auto options = good();
  options.image.clear();
  expect_refused(options, "No image");
  options = good();
  options.memory_mib = 1;
  expect_refused(options, "1 MiB");
  options.memory_mib = 65537;
  expect_refused(options, "64 GiB");
  options = good();
  options.cpus = 999;
  expect_refused(options, "999 CPUs");
  options.cpus = 3;
  expect_refused(options, "0.01 to 2");
  options.cpus = 0;
  expect_refused(options, "0 CPUs");
  options.cpus = -1;
  expect_refused(options, "-1 CPUs");
  options = good();
  options.name = "a/b";
  expect_refused(options, "a/b");
  options = good();
  options.env = {"A;B=1"};
  expect_refused(options, "A;B");
  options = good();
  options.cwd = "relative";
  expect_refused(options, "absolute");
  options = good();
  options.user = "a:b:c";
  expect_refused(options, "a:b:c");
  options = good();
  options.hostname = "-x";
  expect_refused(options, "-x");
  options = good();
  options.disk_bytes = kMostDiskBytes + 1;
  expect_refused(options, "1 TiB");
  options = good();
  options.timeout_ms = ~std::uint64_t{0};
  expect_refused(options, "ten years");
  options = good();
  options.labels = {{"", "x"}};
  expect_refused(options, "label");
}

TEST(Options, NotANumberOfCpusIsRefused) {
  auto options = good();
  options.cpus = std::numeric_limits<double>::quiet_NaN();
  EXPECT_FALSE(check_options(options, 2));
}

TEST(Options, EnvironmentKeys) {
  EXPECT_TRUE(check_env({"A=1", "_x=", "npm_config.x-y=1", "A=b=c"}));
  for (const char* bad : {"=1", "A", "1A=2", "A B=1", "-A=1", "A;B=1", ""})
    EXPECT_FALSE(check_env({bad})) << bad;
  EXPECT_FALSE(check_env({std::string("A=\0", 3)}));
}

TEST(Options, OneStringIsBoundedAndTheSumToo) {
  auto options = good();
  options.command = {"echo", std::string(131071, 'x')};
  EXPECT_TRUE(check_options(options, 1));
  options.command[1] += 'x';
  expect_refused(options, "131072 bytes");
  // 1 MiB in strings of 64 KiB passes.
  options.command = std::vector<std::string>(16, std::string(65535, 'x'));
  EXPECT_TRUE(check_options(options, 1));
  options.command = std::vector<std::string>(31, std::string(65535, 'x'));
  expect_refused(options, "2000000");
}

TEST(Options, ControlCharactersAreNotEchoed) {
  auto options = good();
  options.hostname = "a\x1b[31mb";
  const auto checked = check_options(options, 1);
  ASSERT_FALSE(checked);
  EXPECT_EQ(checked.error().message.find('\x1b'), std::string::npos);
}

TEST(Exec, NeedsACommand) {
  ExecOptions exec;
  EXPECT_FALSE(check_exec(exec));
  exec.argv = {""};
  EXPECT_FALSE(check_exec(exec));
  exec.argv = {"sh"};
  EXPECT_TRUE(check_exec(exec));
}

TEST(Shape, RoundsUp) {
  EXPECT_EQ(shape_for(0.5, 256).vcpus, 1U);
  EXPECT_EQ(shape_for(1.5, 300).vcpus, 2U);
  EXPECT_EQ(shape_for(1.5, 300).memory_mib, 512U);
  EXPECT_EQ(shape_for(1, 512).memory_mib, 512U);
}

TEST(Env, LastWinsAndOrderStays) {
  EXPECT_THAT(merge_env({"A=1", "B=2", "A=3"}, {"C=4", "B=5"}), ElementsAre("A=3", "B=5", "C=4"));
}

class Apply : public testing::Test {
 protected:
  std::vector<std::string> argv() {
    const auto applied = apply_image(record_, options_, config_, std::uint64_t{1} << 30);
    EXPECT_TRUE(applied) << applied.error().message;
    return record_.main ? record_.main->argv : std::vector<std::string>{};
  }
  SandboxOptions options_ = good();
  ImageConfig config_;
  SandboxRecord record_;
};

TEST_F(Apply, CommandRulesOfDocker) {
  config_.entrypoint = {"/entry"};
  config_.cmd = {"serve", "--all"};
  EXPECT_THAT(argv(), ElementsAre("/entry", "serve", "--all"));
  options_.command = {"x"};
  EXPECT_THAT(argv(), ElementsAre("/entry", "x"));
  options_.entrypoint = {"/mine"};
  EXPECT_THAT(argv(), ElementsAre("/mine", "x"));
  options_.command.clear();
  EXPECT_THAT(argv(), ElementsAre("/mine"));  // the image's Cmd belongs to its own entrypoint
  options_.entrypoint = std::vector<std::string>{""};
  options_.command = {"y"};
  EXPECT_THAT(argv(), ElementsAre("y"));
}

TEST_F(Apply, WithoutAnyCommandThereIsASentence) {
  const auto applied = apply_image(record_, options_, config_, 0);
  ASSERT_FALSE(applied);
  EXPECT_THAT(applied.error().message, HasSubstr("names no command"));
  options_.idle = true;
  EXPECT_TRUE(apply_image(record_, options_, config_, 0));
  EXPECT_FALSE(record_.main);
}

TEST_F(Apply, UserAndDirectoryComeFromTheImageUnlessGiven) {
  config_.cmd = {"sh"};
  config_.user = "app";
  config_.working_dir = "/srv";
  config_.env = {"PATH=/bin", "A=1"};
  config_.stop_signal = "SIGINT";
  options_.env = {"A=2"};
  argv();
  EXPECT_EQ(record_.image_user, "app");
  EXPECT_EQ(record_.image_cwd, "/srv");
  EXPECT_EQ(record_.stop_signal, "SIGINT");
  EXPECT_THAT(record_.image_env, ElementsAre("PATH=/bin", "A=2"));
  options_.user = "0:0";
  options_.cwd = "/";
  argv();
  EXPECT_EQ(record_.image_user, "0:0");
  EXPECT_EQ(record_.image_cwd, "/");
}

TEST_F(Apply, ALargeEnvironmentGoesToTheMainCommandAlone) {
  config_.cmd = {"sh"};
  config_.env = {"PATH=/bin"};
  options_.env = {"BIG=" + std::string(60'000, 'x')};
  argv();
  EXPECT_THAT(record_.image_env, ElementsAre("PATH=/bin"));
  EXPECT_THAT(record_.main->env, ElementsAre(options_.env[0]));
  options_.idle = true;
  EXPECT_FALSE(apply_image(record_, options_, config_, 0));
}

TEST_F(Apply, DiskSizes) {
  options_.idle = true;
  EXPECT_TRUE(apply_image(record_, options_, config_, std::uint64_t{1} << 30));
  EXPECT_EQ(record_.disk_bytes, kDefaultDiskBytes);
  options_.disk_bytes = std::uint64_t{20} << 30;
  EXPECT_TRUE(apply_image(record_, options_, config_, std::uint64_t{8} << 30));
  EXPECT_EQ(record_.disk_bytes, std::uint64_t{20} << 30);
  options_.disk_bytes = std::uint64_t{1} << 30;
  const auto small = apply_image(record_, options_, config_, std::uint64_t{8} << 30);
  ASSERT_FALSE(small);
  EXPECT_THAT(small.error().message, HasSubstr("smaller than the image's"));
}

}  // namespace
}  // namespace drupe
