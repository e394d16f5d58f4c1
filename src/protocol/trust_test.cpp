#include "protocol/trust.h"

#include <gtest/gtest.h>

namespace drupe {
namespace {

TrustedAuthority authority() {
  return {"0123456789abcdef", "9482e63a", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"};
}

bool accepted(const TrustedAuthority& one) {
  return TrustBundle::decode(as_bytes(TrustBundle{{one}}.encode())).has_value();
}

TEST(Trust, ComesBack) {
  TrustBundle bundle{{authority(), authority()}};
  bundle.authorities[1].id = "fedcba9876543210";
  const auto back = TrustBundle::decode(as_bytes(bundle.encode()));
  ASSERT_TRUE(back);
  EXPECT_EQ(back->authorities, bundle.authorities);
  EXPECT_TRUE(TrustBundle::decode(as_bytes(TrustBundle{}.encode())));
}

TEST(Trust, NothingThatCouldNameAnotherFileOrCarryAKey) {
  EXPECT_TRUE(accepted(authority()));
  auto one = authority();
  one.id = "../../../../etc/p";
  EXPECT_FALSE(accepted(one));
  one = authority();
  one.id = "0123456789ABCDEF";
  EXPECT_FALSE(accepted(one));
  one = authority();
  one.subject_hash = "9482e63";
  EXPECT_FALSE(accepted(one));
  one = authority();
  one.pem = "-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n";
  EXPECT_FALSE(accepted(one));
}

TEST(Trust, DamagedOrTooLongIsRefused) {
  const std::string good = TrustBundle{{authority()}}.encode();
  for (std::size_t cut = 0; cut < good.size(); ++cut)
    EXPECT_FALSE(TrustBundle::decode(as_bytes(good.substr(0, cut)))) << cut;
  EXPECT_FALSE(TrustBundle::decode(as_bytes(good + "x")));
  const TrustBundle many{std::vector<TrustedAuthority>(kMaxAuthorities + 1, authority())};
  EXPECT_FALSE(TrustBundle::decode(as_bytes(many.encode())));
}

}  // namespace
}  // namespace drupe
