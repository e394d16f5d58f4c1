#include "agent/trust_store.h"

#include <gtest/gtest.h>

namespace drupe::agent {
namespace {

std::string pem(const std::string& body) {
  return "-----BEGIN CERTIFICATE-----\n" + body + "\n-----END CERTIFICATE-----\n";
}

TrustedAuthority authority(const std::string& body) {
  return {"0123456789abcdef", "00000000", pem(body)};
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t found = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++found;
  return found;
}

TEST(TrustStore, AddsWhatIsMissingAndKeepsWhatTheImageHas) {
  const std::string image = "# Image's\n" + pem("IMAGE") + pem("BOTH");
  const auto merged = merge_store(image, {authority("BOTH"), authority("HOST")});
  EXPECT_TRUE(merged.text.starts_with(image));
  EXPECT_EQ(count(merged.text, "BOTH"), 1U);
  EXPECT_EQ(count(merged.text, "\nHOST\n"), 1U);
  ASSERT_EQ(merged.added.size(), 1U);
  EXPECT_EQ(merged.added[0].pem, pem("HOST"));
}

TEST(TrustStore, LineLengthsAndLineEndsDoNotMakeAnotherCertificate) {
  const auto merged = merge_store("-----BEGIN CERTIFICATE-----\r\nAB\r\nCD\r\n-----END CERTIFICATE-----\r\n",
                                  {authority("ABCD")});
  EXPECT_TRUE(merged.added.empty());
  EXPECT_TRUE(merge_store("", {authority("A"), authority("A")}).added.size() == 1);
}

TEST(TrustStore, ASecondCallReplacesWhatTheFirstOneAdded) {
  const std::string image = pem("IMAGE");
  const auto first = merge_store(image, {authority("OLD"), authority("KEPT")});
  const auto second = merge_store(first.text, {authority("KEPT"), authority("NEW")});
  EXPECT_EQ(count(second.text, "OLD"), 0U);
  EXPECT_EQ(second.added.size(), 2U);
  EXPECT_EQ(merge_store(second.text, {authority("KEPT"), authority("NEW")}).text, second.text);
  EXPECT_EQ(merge_store(second.text, {}).text, image);
  // What the guest wrote behind it stays.
  EXPECT_EQ(merge_store(first.text + pem("GUEST"), {}).text, image + pem("GUEST"));
}

TEST(TrustStore, ForeignTextIsKept) {
  const auto merged = merge_store("no newline", {authority("A")});
  EXPECT_TRUE(merged.text.starts_with("no newline\n"));
  const std::string torn = "-----BEGIN CERTIFICATE-----\nA";
  EXPECT_TRUE(merge_store(torn, {}).text == torn);
  const std::string half = "# Authorities that the host trusts: Drupe replaces what follows.\n" + pem("A");
  EXPECT_EQ(merge_store(half, {}).text, half);
}

}  // namespace
}  // namespace drupe::agent
