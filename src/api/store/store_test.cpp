// The store, and its formats: what every earlier version of druped wrote is read by this one.
#include "api/store/store.h"

#include <algorithm>
#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "api/store/migrations.h"
#include "api/store/quota_store.h"
#include "api/store/sqlite.h"
#include "api/store/template_store.h"
#include "api/store/testing/old_formats.h"
#include "api/store/token_store.h"

namespace drupe::api {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class StoreFile : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string directory = (std::filesystem::temp_directory_path() / "drupe-store-XXXXXX").string();
    ASSERT_NE(::mkdtemp(directory.data()), nullptr);
    directory_ = directory;
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }
  std::string path(std::string_view name = "accounts.db") const {
    return directory_ + "/" + std::string(name);
  }

  // A file as the version of that number left it.
  std::string written_by(int version) const {
    const std::string file = path("version-" + std::to_string(version));
    auto database = Database::open(file);
    EXPECT_TRUE(database.has_value());
    if (!database) return file;
    for (int step = 1; step <= version; ++step)
      EXPECT_TRUE(
          (*database)->execute(std::string(testing::kOldFormats.at(static_cast<std::size_t>(step - 1)))));
    EXPECT_TRUE((*database)->execute("PRAGMA user_version = " + std::to_string(version)));
    return file;
  }

  static std::vector<std::string> schema(const std::string& file) {
    std::vector<std::string> lines;
    auto database = Database::open(file);
    EXPECT_TRUE(database.has_value());
    if (!database) return lines;
    auto statement =
        (*database)->prepare("SELECT name || ': ' || coalesce(sql, '') FROM sqlite_schema ORDER BY name");
    EXPECT_TRUE(statement.has_value());
    while (statement && statement->step().value_or(false)) {
      std::string line = statement->text(0);
      // Columns that a later version has added stand where SQLite writes them; spaces do not matter.
      std::erase_if(line, [](char c) { return c == '\n' || c == ' '; });
      lines.push_back(std::move(line));
    }
    return lines;
  }

 private:
  std::string directory_;
};

TEST_F(StoreFile, EveryEarlierFormatIsKnownToThisTest) {
  EXPECT_EQ(testing::kOldFormats.size(), static_cast<std::size_t>(newest_version()));
}

TEST_F(StoreFile, WhatEarlierVersionsWroteIsRead) {
  for (int version = 1; version <= newest_version(); ++version) {
    SCOPED_TRACE(version);
    const std::string file = written_by(version);
    auto opened = open_sqlite_store(file);
    ASSERT_TRUE(opened.has_value()) << opened.error().message;
    Store& store = **opened;
    const auto user = store.find_user("alice");
    ASSERT_TRUE(user && *user);
    EXPECT_EQ((*user)->id, "usr_alice");
    EXPECT_TRUE((*user)->admin);
    const auto of_key = store.user_of_key("hash-1");
    ASSERT_TRUE(of_key && *of_key);
    EXPECT_EQ((*of_key)->id, "usr_alice");
    const auto revoked = store.user_of_key("hash-2");
    ASSERT_TRUE(revoked);
    EXPECT_FALSE(*revoked);
    const auto found = store.find_sandbox("sb-old");
    ASSERT_TRUE(found && *found) << (found ? "no row" : found.error().message);
    const SandboxRow& row = **found;
    EXPECT_EQ(row.name, "worker");
    EXPECT_EQ(row.phase, Phase::kLive);
    EXPECT_EQ(row.egress, (std::vector<std::string>{"api.example.com:443"}));
    EXPECT_EQ(row.envs, (std::map<std::string, std::string>{{"MODE", "fast"}}));
    EXPECT_THAT(row.ssh_pubkeys, ElementsAre("ssh-ed25519 AAAA"));
    EXPECT_EQ(row.auto_pause_s, 180);
    EXPECT_EQ(row.created_ns, 1700000000000000000);
    const auto processes = store.list_processes("sb-old");
    ASSERT_TRUE(processes) << processes.error().message;
    if (version >= 2) {
      ASSERT_EQ(processes->size(), 1U);
      EXPECT_THAT(processes->front().args, ElementsAre("-c", "sleep 1"));
    }
    const auto networks = store.list_networks("usr_alice");
    ASSERT_TRUE(networks) << networks.error().message;
    if (version >= 3) {
      ASSERT_EQ(networks->size(), 1U);
      EXPECT_EQ(networks->front().name, "back");
    }
    if (version >= 4) {
      auto templates = TemplateStore::open(file);
      ASSERT_TRUE(templates);
      const auto rows = (*templates)->list("usr_alice");
      ASSERT_TRUE(rows && rows->size() == 1);
      EXPECT_EQ(rows->front().status, TemplateStatus::kReady);
    }
    if (version >= 5) {
      auto tokens = open_sqlite_tokens(file);
      ASSERT_TRUE(tokens);
      const auto holder = (*tokens)->holder_of_token("token-hash");
      ASSERT_TRUE(holder && *holder);
      EXPECT_EQ((*holder)->sandbox_id, "sb-old");
      auto quotas = open_sqlite_quotas(file);
      ASSERT_TRUE(quotas);
      EXPECT_EQ((*quotas)->quota_of("usr_alice").value_or(Quota{}).mem_mib, 4096);
    }
    // It is a store like a new one: rules hold, and what is written is read.
    SandboxRow second = row;
    second.id = "sb-second";
    EXPECT_EQ(store.add_sandbox(second).error().code, ErrorCode::kAlreadyExists);
    second.name = "other";
    EXPECT_TRUE(store.add_sandbox(second));
  }
}

TEST_F(StoreFile, EveryWayLeadsToTheSameFormat) {
  ASSERT_TRUE(open_sqlite_store(path()));
  const auto expected = schema(path());
  EXPECT_FALSE(expected.empty());
  for (int version = 1; version <= newest_version(); ++version) {
    SCOPED_TRACE(version);
    const std::string file = written_by(version);
    ASSERT_TRUE(open_sqlite_store(file));
    EXPECT_EQ(schema(file), expected);
  }
}

TEST_F(StoreFile, ALaterFormatIsRefusedAndLeftAlone) {
  const std::string file = written_by(newest_version());
  {
    auto database = Database::open(file);
    ASSERT_TRUE(database);
    ASSERT_TRUE((*database)->execute("PRAGMA user_version = " + std::to_string(newest_version() + 1)));
  }
  const auto before = schema(file);
  const auto opened = open_sqlite_store(file);
  ASSERT_FALSE(opened);
  EXPECT_EQ(opened.error().code, ErrorCode::kUnsupported);
  EXPECT_EQ(schema(file), before);
}

// A migration is one transaction for each version: one that fails leaves the version before it.
TEST_F(StoreFile, AFailedMigrationChangesNothing) {
  const std::string file = written_by(1);
  {
    auto database = Database::open(file);
    ASSERT_TRUE(database);
    ASSERT_TRUE((*database)->execute("CREATE TABLE processes (in_the_way TEXT)"));
  }
  const auto before = schema(file);
  EXPECT_FALSE(open_sqlite_store(file));
  EXPECT_EQ(schema(file), before);
}

TEST_F(StoreFile, NamesAreFreeAgainWhenTheirSandboxEnds) {
  auto opened = open_sqlite_store(written_by(1));
  ASSERT_TRUE(opened);
  auto row = **(*opened)->find_sandbox("sb-old");
  row.phase = Phase::kDestroying;
  ASSERT_TRUE((*opened)->update_sandbox(row));
  row.id = "sb-next";
  row.phase = Phase::kCreating;
  EXPECT_TRUE((*opened)->add_sandbox(row));
}

TEST_F(StoreFile, AKeyIsRevokedForEveryProcess) {
  const std::string file = written_by(newest_version());
  auto one = open_sqlite_store(file);
  auto other = open_sqlite_store(file);
  ASSERT_TRUE(one && other);
  ASSERT_TRUE((*other)->user_of_key("hash-1").value_or(std::nullopt));
  const auto keys = (*one)->list_keys();
  ASSERT_TRUE(keys);
  const auto key = std::ranges::find_if(*keys, [](const auto& entry) { return !entry.first.revoked_ns; });
  ASSERT_NE(key, keys->end());
  EXPECT_TRUE((*one)->revoke_key(key->first.id, 1).value_or(false));
  EXPECT_FALSE((*one)->revoke_key(key->first.id, 2).value_or(true));
  EXPECT_FALSE((*other)->user_of_key("hash-1").value_or(User{}));
}

}  // namespace
}  // namespace drupe::api
