// What becomes of a file of certificates when the host adds its authorities to it.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "protocol/trust.h"

namespace drupe::agent {

struct MergedStore {
  std::string text;
  std::vector<TrustedAuthority> added;  ///< Those that the file lacked, in their order.
};

/// `old`, a file of PEM blocks that the image or the guest made, with what it lacks of `authorities` at its
/// end, between two comment lines. What an earlier call put between such lines goes first.
[[nodiscard]] MergedStore merge_store(std::string_view old, const std::vector<TrustedAuthority>& authorities);

}  // namespace drupe::agent
