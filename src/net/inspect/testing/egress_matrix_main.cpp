// Prints docs/egress-matrix.md.
#include <cstdio>

#include "net/inspect/testing/egress_matrix.h"

int main() {
  return std::fputs(drupe::net::testing::matrix_page().c_str(), stdout) < 0 ? 1 : 0;
}
