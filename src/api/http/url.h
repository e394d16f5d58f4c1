// Decoding of request targets. What comes out may hold any byte, a slash or a zero included.
#pragma once

#include <string>
#include <string_view>

#include "api/http/message.h"
#include "base/result.h"

namespace drupe::api {

/// "%41" is "A". `plus_is_space`: as forms have it. kInvalidArgument for a '%' without two hexadecimal
/// digits.
Result<std::string> percent_decode(std::string_view text, bool plus_is_space);

/// Fills `head.segments` and `head.query` from `head.target`: split on '/', then decoded, so that an encoded
/// slash stays within its segment. A target that begins with no '/' (a proxy's, or "*") is kInvalidArgument.
Status split_target(RequestHead& head);

}  // namespace drupe::api
