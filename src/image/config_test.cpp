#include "image/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace drupe {
namespace {

using testing::ElementsAre;

const std::string kHex(64, 'b');
const std::string kRootfs = R"("rootfs":{"type":"layers","diff_ids":["sha256:)" + kHex + R"("]})";

TEST(ImageSpec, ReadsWhatDockerWrites) {
  const auto spec = parse_image_spec(
      R"({"architecture":"amd64","os":"linux","config":{"Env":["PATH=/bin","A=1"],"Entrypoint":["sh","-c"],
      "Cmd":["x"],"WorkingDir":"/w","User":"1000:1000","StopSignal":"SIGINT","Labels":{"k":"v"},"ExposedPorts":{"80/tcp":{}}},)" +
      kRootfs + "}");
  ASSERT_TRUE(spec) << spec.error().message;
  EXPECT_THAT(spec->config.env, ElementsAre("PATH=/bin", "A=1"));
  EXPECT_THAT(spec->config.entrypoint, ElementsAre("sh", "-c"));
  EXPECT_THAT(spec->config.cmd, ElementsAre("x"));
  EXPECT_EQ(spec->config.working_dir, "/w");
  EXPECT_EQ(spec->config.user, "1000:1000");
  EXPECT_EQ(spec->config.stop_signal, "SIGINT");
  EXPECT_EQ(spec->config.labels.at("k"), "v");
  EXPECT_THAT(spec->diff_ids, ElementsAre(kHex));
}

// E2B infra#2706, #2740: the last of two values counts, long values stay whole.
TEST(ImageSpec, LastEnvironmentValueWins) {
  const std::string large(200'000, 'x');
  const auto spec =
      parse_image_spec(R"({"config":{"Env":["A=1","B=)" + large + R"(","A=2","C","=x"]},)" + kRootfs + "}");
  ASSERT_TRUE(spec);
  EXPECT_THAT(spec->config.env, ElementsAre("A=2", "B=" + large));
}

TEST(ImageSpec, NullsAreNothing) {
  const auto spec =
      parse_image_spec(R"({"config":{"Env":null,"Cmd":null,"Labels":null,"User":null},)" + kRootfs + "}");
  ASSERT_TRUE(spec);
  EXPECT_TRUE(spec->config.cmd.empty());
  EXPECT_TRUE(parse_image_spec(R"({"config":null,)" + kRootfs + "}"));
}

TEST(ImageSpec, RefusesOtherShapes) {
  for (const std::string& text :
       {std::string(), std::string("[]"), std::string("{}"), std::string("{"),
        std::string(R"({"rootfs":{}})") + "x", R"({"config":[],)" + kRootfs + "}",
        R"({"config":{"Env":"A=1"},)" + kRootfs + "}", R"({"config":{"Cmd":[1]},)" + kRootfs + "}",
        R"({"config":{"User":7},)" + kRootfs + "}", R"({"config":{"Env":["A=\u0000"]},)" + kRootfs + "}",
        std::string(R"({"rootfs":{"diff_ids":["sha256:../../x"]}})")}) {
    const auto spec = parse_image_spec(text);
    ASSERT_FALSE(spec) << text;
    EXPECT_EQ(spec.error().code, ErrorCode::kIntegrity);
  }
  EXPECT_EQ(parse_image_spec(std::string(kConfigLimit + 1, ' ')).error().code, ErrorCode::kLimit);
}

TEST(ImageSpec, EncodesToWhatItReads) {
  ImageSpec spec;
  spec.config = {{"A=\"1\"\n"}, {"sh"}, {"a", ""}, "/w", "u", "TERM", {{"k", "v"}}, "amd64", "linux"};
  spec.diff_ids = {kHex};
  const auto again = parse_image_spec(encode_image_spec(spec));
  ASSERT_TRUE(again) << again.error().message;
  EXPECT_EQ(again->config, spec.config);
  EXPECT_EQ(again->diff_ids, spec.diff_ids);
  EXPECT_EQ(encode_image_spec(*again), encode_image_spec(spec));
}

}  // namespace
}  // namespace drupe
