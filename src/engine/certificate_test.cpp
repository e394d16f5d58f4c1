#include "engine/certificate.h"

#include <filesystem>

#include <fcntl.h>

#include <gtest/gtest.h>

#include "base/files.h"
#include "engine/testing/certificates.h"

namespace drupe {
namespace {

using namespace testing_certificates;

TEST(Certificate, HashAndIdAreOpenSslsOwn) {
  // openssl x509 -hash; openssl x509 -outform der | sha256sum
  const struct {
    const char* pem;
    const char* hash;
    const char* id;
  } table[] = {{kPlain, "734a4e5f", "d5f42453cbdaff20"},   // blanks to be joined, capital letters
               {kUtf8, "27a30b53", "6aa7f48a218cb727"},    // letters that are not ASCII stay capital
               {kMulti, "6a228563", "f7e25c69c98ec0aa"}};  // two values in one set
  for (const auto& line : table) {
    const auto found = read_certificates(line.pem);
    ASSERT_TRUE(found) << found.error().message;
    ASSERT_EQ(found->size(), 1U);
    EXPECT_EQ(found->front().subject_hash, line.hash);
    EXPECT_EQ(found->front().id, line.id);
    EXPECT_EQ(found->front().pem, line.pem);
  }
}

TEST(Certificate, OnlyCertificatesAreTaken) {
  const std::string text =
      std::string("# comment\r\n-----BEGIN PRIVATE KEY-----\nSECRET\n-----END PRIVATE KEY-----\n") + kPlain +
      "between\n" + kUtf8 + kPlain + "-----BEGIN TRUSTED CERTIFICATE-----\nAA==\n";
  const auto found = read_certificates(text);
  ASSERT_TRUE(found);
  ASSERT_EQ(found->size(), 2U);
  for (const auto& one : *found) EXPECT_EQ(one.pem.find("SECRET"), std::string::npos);
  const auto none = read_certificates("nothing");
  EXPECT_TRUE(none && none->empty());
}

TEST(Certificate, WhatIsDamagedIsRefused) {
  const std::string good = kPlain;
  const std::string begin = "-----BEGIN CERTIFICATE-----\n";
  const std::string end = "-----END CERTIFICATE-----\n";
  for (const std::string& bad : {begin + end, begin + "AAAA\n" + end, begin + "****\n" + end, begin + "MIIB",
                                 good + begin + "MIIBow==\n" + end}) {
    const auto found = read_certificates(bad);
    ASSERT_FALSE(found) << bad;
    EXPECT_EQ(found.error().code, ErrorCode::kInvalidArgument);
  }
  EXPECT_NE(read_certificates(good + begin + end).error().message.find("number 2"), std::string::npos);
  // Every byte that is cut off or changed gives a certificate or an error, and nothing else.
  for (std::size_t at = begin.size(); at < good.size() - end.size(); ++at) {
    std::string changed = good;
    changed[at] = changed[at] == 'A' ? 'B' : 'A';
    (void)read_certificates(changed);
    (void)read_certificates(good.substr(0, at) + "\n" + end);
  }
}

TEST(Certificate, HashesOfThisHostsStoreAreTheNamesOfItsLinks) {
  const std::string dir = "/etc/ssl/certs";
  const auto bundle = read_file(AT_FDCWD, dir + "/ca-certificates.crt", kMaxTrustBundle);
  if (!bundle || !std::filesystem::exists(dir + "/ca-certificates.crt"))
    GTEST_SKIP() << "This host has no store as Debian has it";
  std::size_t linked = 0;
  for (std::error_code failed; const auto& entry : std::filesystem::directory_iterator(dir, failed)) {
    const std::string name = entry.path().filename();
    if (name.size() < 10 || name[8] != '.' || name.find_first_not_of("0123456789abcdef") != 8) continue;
    const auto text = read_file(AT_FDCWD, entry.path(), kMaxTrustBundle);
    const auto found = text ? read_certificates(*text) : Result<std::vector<TrustedAuthority>>();
    if (!found || found->size() != 1) continue;
    EXPECT_EQ(found->front().subject_hash, name.substr(0, 8)) << entry.path();
    ++linked;
  }
  if (linked == 0) GTEST_SKIP() << "This host's store has no links by hash";
}

}  // namespace
}  // namespace drupe
