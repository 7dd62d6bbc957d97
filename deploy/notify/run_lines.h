// What a run's directory tells while it grows: the lines of results.csv and
// events.jsonl. Half a line is none yet; what cannot be read is nothing yet.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace headroom::notify {

// One line of results.csv.
struct ResultsLine {
  int64_t epoch = 0;
  std::string text;
  std::vector<std::pair<std::string, double>> figures;  // those that it has
};

std::vector<ResultsLine> read_epochs(const std::filesystem::path& results_csv);

struct EventLine {
  std::string kind;
  int64_t step = 0;
  std::string reason, time;
  // Members that events of some kinds have.
  std::optional<int64_t> epoch, generation;
  std::string change;
};

// Reads on where it stopped the last time.
class EventReader {
 public:
  EventReader(std::filesystem::path events_jsonl, int64_t first_byte);

  std::vector<EventLine> take();

 private:
  std::filesystem::path path_;
  int64_t next_byte_;
};

// Bytes of the file now; 0 where there is none.
int64_t bytes_of(const std::filesystem::path& file);

// Milliseconds since 1970 of "2026-11-21T08:23:00.123Z"; nothing for another
// text.
std::optional<int64_t> milliseconds_of(const std::string& utc);

}  // namespace headroom::notify
