// The lines of results.csv and events.jsonl in a run directory as plain values,
// while the run still writes them. Incomplete lines are ignored until they are
// complete; invalid lines are ignored.
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

// Parses JSON. Returns a discarded value if the text is invalid or has more
// than 64 levels, because writing it again is recursive.
nlohmann::ordered_json shallow_json(std::string_view text);

// The text under `key`; "" if it is missing or no text.
std::string text_member(const nlohmann::ordered_json& object, const char* key);

// The complete lines among the file's last `most_bytes`, each with its line
// feed.
std::string last_lines(const std::filesystem::path& file, size_t most_bytes);

// The complete lines of `text`, without their line feeds. They point into it.
std::vector<std::string_view> lines_of(std::string_view text);

// A line of steps.jsonl with an empty list of samples. That list is most of the
// line, so the rest is parsed several times faster.
std::string without_samples(std::string_view line);

// The last complete lines of a file of JSON objects, at most `most`, oldest
// first. Reads only the file's last 4 MiB.
std::deque<nlohmann::ordered_json> last_objects(
    const std::filesystem::path& file, size_t most);

// The content of results.csv. Lines without an epoch number, or with a wrong
// number of cells, are left out.
struct ResultsTable {
  struct Line {
    int64_t epoch = 0;
    std::string text;
    // One per column; nullopt if the cell is not a number.
    std::vector<std::optional<double>> cells;
  };
  std::vector<std::string> columns;  // the first is the epoch
  std::vector<Line> lines;
};
ResultsTable results_table(
    std::string_view csv,
    size_t most_lines = std::numeric_limits<size_t>::max());

// The steps of the finished checkpoints, ascending: the manifest is written
// last. None while the folder still has an older run's files.
std::vector<int64_t> checkpoints_in(const std::filesystem::path& run_directory);

struct EventLine {
  std::string kind;
  int64_t step = 0;
  std::string reason, time;
  // Only events of some kinds have these members.
  std::optional<int64_t> epoch, generation;
  std::string change;
};

// Reads events.jsonl and continues at each call where the last call ended.
class EventReader {
 public:
  // Skips events before `first_byte`; end_of_lines() gives only future ones.
  EventReader(std::filesystem::path events_jsonl, uint64_t first_byte);

  std::vector<EventLine> take();

 private:
  LineFollower follower_;
};

}  // namespace headroom::records
