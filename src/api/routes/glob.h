// Names of files against patterns: '*' and '?' within one name, "**" over any number of them.
#pragma once

#include <string_view>

namespace drupe::api {

/// A pattern without '/' is held against the last name of `path`, one with it against all of it. Takes time
/// in proportion to the product of both lengths, whatever they are.
[[nodiscard]] bool matches_glob(std::string_view pattern, std::string_view path);

}  // namespace drupe::api
