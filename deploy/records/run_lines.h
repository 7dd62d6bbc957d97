// What a run's directory tells while it grows, as plain values: the lines of
// results.csv and events.jsonl. Half a line is none yet; what cannot be read is
// nothing yet.
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
#include <utility>
#include <vector>

#include "deploy/records/line_follower.h"

namespace headroom::records {

// The value of a text; a discarded one where it is no JSON, or has more than 64
// levels: whoever writes it out again recurses.
nlohmann::ordered_json shallow_json(std::string_view text);

// The text under `key`; "" where there is none.
std::string text_member(const nlohmann::ordered_json& object, const char* key);

// The last whole lines of a file of JSON objects, oldest first, at most `most`.
// Only the file's last 4 MiB are read.
std::deque<nlohmann::ordered_json> last_objects(
    const std::filesystem::path& file, size_t most);

// results.csv. A line without an epoch's number, or with another number of
// cells than there are columns, is none.
struct ResultsTable {
  struct Line {
    int64_t epoch = 0;
    std::string text;
    // One for each column; nothing where a cell has no number.
    std::vector<std::optional<double>> cells;
  };
  std::vector<std::string> columns;  // the first is the epoch
  std::vector<Line> lines;
};
ResultsTable results_table(
    std::string_view csv,
    size_t most_lines = std::numeric_limits<size_t>::max());

struct EventLine {
  std::string kind;
  int64_t step = 0;
  std::string reason, time;
  // Members that events of some kinds have.
  std::optional<int64_t> epoch, generation;
  std::string change;
};

// Reads events.jsonl on where it stopped the last time.
class EventReader {
 public:
  // Events before `first_byte` are not read: end_of_lines() for those alone
  // that are still to come.
  EventReader(std::filesystem::path events_jsonl, uint64_t first_byte);

  std::vector<EventLine> take();

 private:
  LineFollower follower_;
};

}  // namespace headroom::records
