#pragma once

#include <string>
#include <vector>

namespace headroom::cli {

// Formats rows of cells as lines of aligned columns, indented and separated by
// two spaces. The first row must have the most cells. "" for no rows.
std::string text_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace headroom::cli
