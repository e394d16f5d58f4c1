#include "cli/table.h"

#include <algorithm>

#include "cli/values.h"

namespace drupe::cli {
namespace {

/// Characters, counted as one column each.
std::size_t columns(const std::string& text) {
  return static_cast<std::size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

std::string format_table(const std::vector<std::string>& header,
                         const std::vector<std::vector<std::string>>& rows) {
  std::vector<std::vector<std::string>> cells{header};
  for (const auto& row : rows) {
    std::vector<std::string> safe;
    safe.reserve(row.size());
    for (const auto& cell : row) safe.push_back(printable(cell));
    cells.push_back(std::move(safe));
  }
  std::vector<std::size_t> widths(header.size(), 0);
  for (const auto& row : cells)
    for (std::size_t i = 0; i < row.size() && i < widths.size(); ++i)
      widths[i] = std::max(widths[i], columns(row[i]));

  std::string out;
  for (const auto& row : cells) {
    std::string line;
    for (std::size_t i = 0; i < row.size() && i < widths.size(); ++i) {
      line += row[i];
      if (i + 1 < row.size()) line.append(widths[i] - columns(row[i]) + 3, ' ');
    }
    out += line + "\n";
  }
  return out;
}

}  // namespace drupe::cli
