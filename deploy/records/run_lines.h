// The lines of results.csv, and of files of JSON objects, in a run directory as
// plain values, while the run still writes them. Incomplete lines are ignored
// until they are complete; invalid lines are ignored.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::records {

// Parses JSON. Returns a discarded value if the text is invalid or has more
// than 64 levels, because writing it again is recursive.
nlohmann::ordered_json shallow_json(std::string_view text);

// The text under `key`; "" if it is missing or no text.
std::string text_member(const nlohmann::ordered_json& object, const char* key);

// The last complete lines of a file of JSON objects, at most `most`, oldest
// first. Reads only the file's last 4 MiB.
std::deque<nlohmann::ordered_json> last_objects(
    const std::filesystem::path& file, size_t most);

// The content of results.csv. Lines without an epoch number, or with a wrong
// number of cells, are left out.
struct ResultsTable {
  struct Line {
    int64_t epoch = 0;
    // One per column; nullopt if the cell is not a number.
    std::vector<std::optional<double>> cells;
  };
  std::vector<std::string> columns;  // the first is the epoch
  std::vector<Line> lines;
};
ResultsTable results_table(
    std::string_view csv,
    size_t most_lines = std::numeric_limits<size_t>::max());

}  // namespace headroom::records
