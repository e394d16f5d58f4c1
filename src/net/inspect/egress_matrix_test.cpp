#include "net/inspect/testing/egress_matrix.h"

#include <fcntl.h>

#include <gtest/gtest.h>

#include "base/files.h"

namespace drupe::net::testing {
namespace {

TEST(EgressMatrix, EveryRuleLetsThroughWhatItSays) {
  for (const MatrixRow& row : matrix_rows()) {
    const std::string real = outcome(row);
    ASSERT_EQ(row.expected.size(), attempts().size()) << row.title << " " << real;
    for (std::size_t i = 0; i < real.size(); ++i)
      EXPECT_EQ(real[i], row.expected[i])
          << row.title << ": " << attempts()[i].title << " (column " << i + 1 << ")";
  }
}

TEST(EgressMatrix, ThePageIsUpToDate) {
  const auto page = read_file(AT_FDCWD, DRUPE_DOCS "/egress-matrix.md", std::size_t{1} << 20);
  ASSERT_TRUE(page) << page.error().message;
  EXPECT_EQ(*page, matrix_page()) << "run scripts/egress-matrix.sh";
}

}  // namespace
}  // namespace drupe::net::testing
