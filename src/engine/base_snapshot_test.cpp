#include "engine/base_snapshot.h"

#include <set>

#include <gtest/gtest.h>

#include "engine/testing/temp_home.h"

namespace drupe {
namespace {

BaseManifest example() {
  BaseManifest manifest;
  manifest.key = "abc";
  manifest.image_id = "image";
  manifest.kernel_digest = std::string(64, 'a');
  manifest.state_key = "state";
  manifest.tsc_khz = 2'100'000;
  manifest.epoch = ~std::uint64_t{0};
  manifest.disk_bytes = std::uint64_t{8} << 30;
  manifest.created_ns = 5;
  manifest.shape = {2, 1024};
  return manifest;
}

TEST(Manifest, SurvivesItsFile) {
  const auto decoded = decode_manifest(encode_manifest(example()));
  ASSERT_TRUE(decoded) << decoded.error().message;
  EXPECT_EQ(encode_manifest(*decoded), encode_manifest(example()));
  EXPECT_EQ(decoded->epoch, ~std::uint64_t{0});
  EXPECT_EQ(decoded->shape.memory_mib, 1024U);
}

TEST(Manifest, DamageIsNoticed) {
  const std::string text = encode_manifest(example());
  for (const std::string& bad :
       {std::string(), std::string("{}"), std::string("[]"), text.substr(0, text.size() / 2)})
    EXPECT_EQ(decode_manifest(bad).error().code, ErrorCode::kIntegrity);
  auto other = example();
  other.format = kBaseFormat + 1;
  EXPECT_FALSE(decode_manifest(encode_manifest(other)));
  other = example();
  other.kernel_digest = "../../etc";
  EXPECT_FALSE(decode_manifest(encode_manifest(other)));
}

TEST(BaseKey, DependsOnEverythingThatSavedMemoryDependsOn) {
  std::set<std::string> keys;
  BaseRecipe recipe;
  recipe.image_id = "a";
  GuestAssets assets;
  assets.digest = "k";
  HypervisorInfo hypervisor;
  hypervisor.name = "qemu";
  hypervisor.state_key = "s";
  const auto add = [&] { return keys.insert(base_key(recipe, assets, hypervisor)).second; };
  EXPECT_TRUE(add());
  EXPECT_FALSE(add());
  recipe.image_id = "b";
  EXPECT_TRUE(add());
  recipe.shape.memory_mib = 1024;
  EXPECT_TRUE(add());
  recipe.shape.vcpus = 2;
  EXPECT_TRUE(add());
  assets.digest = "l";
  EXPECT_TRUE(add());
  hypervisor.state_key = "t";
  EXPECT_TRUE(add());
  hypervisor.accelerator = Accelerator::kKvm;
  EXPECT_TRUE(add());
  // Neither the clock (checked apart) nor what only the exercises see.
  hypervisor.tsc_khz = 5;
  recipe.env = {"A=1"};
  EXPECT_FALSE(add());
}

TEST(Tsc, OnePartInAThousand) {
  EXPECT_TRUE(same_tsc(2'099'000, 2'100'000));
  EXPECT_TRUE(same_tsc(2'100'000, 2'100'000));
  EXPECT_FALSE(same_tsc(2'095'000, 2'100'000));
  EXPECT_FALSE(same_tsc(0, 2'100'000));
}

using PruneTest = TempHome;

TEST_F(PruneTest, RemovesWhatDoesNotFitAndWhatIsOldAndKeepsTheRest) {
  Host host;
  host.hypervisor.state_key = "state";
  GuestAssets assets;
  assets.digest = std::string(64, 'b');
  const auto add = [&](const std::string& key, const BaseManifest& manifest) {
    ASSERT_TRUE(make_dir_at(home().dir(), Home::base(key)));
    ASSERT_TRUE(replace_file(home().dir(), Home::base(key) + "/" + kManifestFile, encode_manifest(manifest),
                             Sync::kNo));
  };
  add("good", example());
  auto stale = example();
  stale.state_key = "another";
  add("stale", stale);
  ASSERT_TRUE(make_dir_at(home().dir(), Home::base("broken")));
  for (const char letter : {'a', 'b', 'c'})
    ASSERT_TRUE(make_dir_at(home().dir(), "kernels/" + std::string(64, letter)));
  auto pruned = prune_bases(home(), host, assets, std::chrono::hours(1), Prune::kOnlyCount);
  ASSERT_TRUE(pruned);
  EXPECT_EQ(pruned->bases, 2U);
  EXPECT_EQ(pruned->kernels, 1U);
  EXPECT_TRUE(exists("bases/stale"));
  EXPECT_TRUE(exists("kernels/" + std::string(64, 'c')));
  pruned = prune_bases(home(), host, assets, std::chrono::hours(1), Prune::kRemove);
  ASSERT_TRUE(pruned);
  EXPECT_EQ(pruned->bases, 2U);
  EXPECT_EQ(pruned->kernels, 1U);  // 'c': neither the current one's nor a base's
  EXPECT_TRUE(exists("bases/good"));
  EXPECT_TRUE(exists("kernels/" + std::string(64, 'a')));
  pruned = prune_bases(home(), host, assets, std::chrono::seconds(0), Prune::kRemove);
  ASSERT_TRUE(pruned);
  EXPECT_EQ(pruned->bases, 1U);
  EXPECT_EQ(pruned->kernels, 1U);
}

TEST_F(PruneTest, LeavesOneThatIsBeingMade) {
  ASSERT_TRUE(make_dir_at(home().dir(), Home::base("busy")));
  const auto lock = try_lock(home().dir(), "locks/base-busy");
  ASSERT_TRUE(lock && lock->valid());
  EXPECT_EQ(prune_bases(home(), {}, {}, std::chrono::seconds(0), Prune::kRemove)->bases, 0U);
  EXPECT_TRUE(exists("bases/busy"));
}

}  // namespace
}  // namespace drupe
