#include "image/manifest.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace drupe {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

const std::string kHex(64, 'c');
const std::string kOciManifest = "application/vnd.oci.image.manifest.v1+json";
const std::string kOciIndex = "application/vnd.oci.image.index.v1+json";

std::string descriptor(const std::string& type, const std::string& more = "") {
  return R"({"mediaType":")" + type + R"(","digest":"sha256:)" + kHex + R"(","size":7)" + more + "}";
}
const std::string kConfig = descriptor("application/vnd.oci.image.config.v1+json");
const std::string kLayer = descriptor("application/vnd.oci.image.layer.v1.tar+gzip");
const std::string kPlain = R"({"schemaVersion":2,"config":)" + kConfig + R"(,"layers":[)" + kLayer + "]}";

TEST(ParseManifest, ReadsAManifest) {
  const auto manifest = parse_manifest(kPlain, kOciManifest);
  ASSERT_TRUE(manifest) << manifest.error().message;
  EXPECT_FALSE(manifest->is_index);
  EXPECT_EQ(manifest->config.digest, kHex);
  ASSERT_EQ(manifest->layers.size(), 1U);
  EXPECT_EQ(manifest->layers[0].size, 7U);
  EXPECT_TRUE(check_is_image(*manifest));
}

// CVE-2021-41190: one document must not be read as an index by one and as a manifest by another.
TEST(ParseManifest, RefusesAmbiguity) {
  EXPECT_FALSE(parse_manifest(R"({"manifests":[],"layers":[],"config":{}})", ""));
  EXPECT_FALSE(parse_manifest(kPlain, kOciIndex));
  EXPECT_FALSE(parse_manifest(
      R"({"mediaType":")" + kOciIndex + R"(","config":)" + kConfig + R"(,"layers":[]})", kOciManifest));
  EXPECT_FALSE(parse_manifest(R"({"schemaVersion":2})", kOciManifest));
}

TEST(ParseManifest, NamesTheOldFormat) {
  const auto manifest = parse_manifest(R"({"schemaVersion":1,"fsLayers":[]})",
                                       "application/vnd.docker.distribution.manifest.v1+prettyjws");
  ASSERT_FALSE(manifest);
  EXPECT_EQ(manifest.error().code, ErrorCode::kUnsupported);
}

TEST(ParseManifest, RefusesWrongDescriptors) {
  for (const std::string text : {R"({"mediaType":"x","digest":"sha256:../../x","size":1})",
                                 R"({"digest":"sha512:00","size":1})", R"({"size":1})", "7", "null"})
    EXPECT_FALSE(parse_manifest(R"({"config":)" + kConfig + R"(,"layers":[)" + text + "]}", "")) << text;
  for (const std::string size : {"-1", "1.5", "\"1\"", "1e99", "99999999999999999999999"})
    EXPECT_FALSE(parse_manifest(
        R"({"config":)" + kConfig + R"(,"layers":[{"digest":"sha256:)" + kHex + R"(","size":)" + size + "}]}",
        ""))
        << size;
}

// wsl-ui#104: the wanted platform of an index, whatever its place.
TEST(PickPlatform, FindsItOrListsWhatThereIs) {
  const auto index = parse_manifest(
      R"({"manifests":[)" + descriptor(kOciManifest, R"(,"platform":{"os":"linux","architecture":"arm64"})") +
          "," + descriptor(kOciManifest, R"(,"platform":{"os":"unknown","architecture":"unknown"})") + "," +
          R"({"digest":"sha256:)" + std::string(64, 'd') +
          R"(","size":9,"platform":{"os":"linux","architecture":"amd64"}}]})",
      kOciIndex);
  ASSERT_TRUE(index) << index.error().message;
  EXPECT_EQ(pick_platform(*index, "linux/amd64")->digest, std::string(64, 'd'));
  const auto none = pick_platform(*index, "linux/s390x");
  ASSERT_FALSE(none);
  EXPECT_THAT(none.error().message, HasSubstr("linux/arm64"));
  EXPECT_EQ(none.error().message.find("unknown"), std::string::npos);
}

TEST(LayerCompression, ByMediaType) {
  EXPECT_EQ(*layer_compression("application/vnd.oci.image.layer.v1.tar"), Compression::kNone);
  EXPECT_EQ(*layer_compression("application/vnd.oci.image.layer.v1.tar+zstd"), Compression::kZstd);
  EXPECT_EQ(*layer_compression("application/vnd.docker.image.rootfs.diff.tar.gzip"), Compression::kGzip);
  for (const char* type :
       {"", "application/vnd.oci.image.layer.v1.tar+gzip+encrypted", "application/octet-stream"})
    EXPECT_EQ(layer_compression(type).error().code, ErrorCode::kUnsupported) << type;
}

TEST(ParseSavedManifest, ReadsWhatDockerSaves) {
  const auto images = parse_saved_manifest(
      R"([{"Config":"c.json","RepoTags":["a:1","b:2"],"Layers":["x/layer.tar"]},{"Config":"d.json","RepoTags":null,"Layers":[]}])");
  ASSERT_TRUE(images);
  ASSERT_EQ(images->size(), 2U);
  EXPECT_THAT((*images)[0].names, ElementsAre("a:1", "b:2"));
  EXPECT_TRUE((*images)[1].names.empty());
  for (const char* text : {"", "{}", "[]", "[{}]", "[7]", R"([{"Config":7}])"})
    EXPECT_FALSE(parse_saved_manifest(text)) << text;
}

}  // namespace
}  // namespace drupe
