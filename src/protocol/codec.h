// Shared by the encoders of this folder.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/bytes.h"
#include "base/result.h"

namespace drupe::codec {

[[nodiscard]] inline std::unexpected<Error> malformed(std::string_view what) {
  return fail(ErrorCode::kIntegrity, "A " + std::string(what) + " message is malformed");
}

/// u8 code, text message, text next step, i32 errno.
void append_error(ByteWriter& writer, const Error& error);
/// An unknown code becomes kGuest.
[[nodiscard]] Error read_error(ByteReader& reader);

}  // namespace drupe::codec
