// A table for people: columns as wide as their widest cell, two spaces between them. Cells are made safe for
// a terminal.
#pragma once

#include <string>
#include <vector>

namespace drupe::cli {

[[nodiscard]] std::string format_table(const std::vector<std::string>& header,
                                       const std::vector<std::vector<std::string>>& rows);

}  // namespace drupe::cli
