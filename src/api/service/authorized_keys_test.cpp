#include "api/service/authorized_keys.h"

#include <gtest/gtest.h>

namespace drupe::api {
namespace {

TEST(AuthorizedKeys, AppendsAndLeavesTheRestAlone) {
  EXPECT_EQ(changed_keys("", {}, {"ssh-a 1"}), "ssh-a 1\n");
  EXPECT_EQ(changed_keys("# mine\n\nssh-x 9", {}, {"ssh-a 1", "ssh-b 2"}),
            "# mine\n\nssh-x 9\nssh-a 1\nssh-b 2\n");
}

TEST(AuthorizedKeys, WritesNothingThatIsThere) {
  EXPECT_EQ(changed_keys("ssh-a 1\nssh-x 9\n", {}, {"ssh-a 1"}), std::nullopt);
  EXPECT_EQ(changed_keys("ssh-a 1", {}, {"ssh-a 1"}), std::nullopt);
  EXPECT_EQ(changed_keys("", {}, {}), std::nullopt);
}

TEST(AuthorizedKeys, TakesOutWhatIsReplaced) {
  EXPECT_EQ(changed_keys("ssh-a 1\nssh-x 9\n", {"ssh-a 1"}, {"ssh-b 2"}), "ssh-x 9\nssh-b 2\n");
  EXPECT_EQ(changed_keys("ssh-a 1\n", {"ssh-a 1"}, {"ssh-a 1"}), std::nullopt);
}

}  // namespace
}  // namespace drupe::api
