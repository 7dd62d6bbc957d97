// Rows of cells as lines of aligned columns.
#pragma once

#include <string>
#include <vector>

namespace headroom::cli {

// Two spaces in front and between; the first row has the most cells. "" for no
// rows.
std::string text_table(const std::vector<std::vector<std::string>>& rows);

}  // namespace headroom::cli
