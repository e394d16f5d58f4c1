// Random identifiers from the kernel's generator.
#pragma once

#include <cstddef>
#include <string>

namespace drupe {

/// `bytes` random bytes. Ends the process if the kernel has none to give.
[[nodiscard]] std::string random_bytes(std::size_t bytes);
/// Twelve lower-case hexadecimal digits: a sandbox id, or a unique file name suffix.
[[nodiscard]] std::string random_id();
[[nodiscard]] std::string to_hex(const std::string& bytes);

}  // namespace drupe
