// The files of a run's record as plain values, while the run still writes them:
// events.jsonl, steps.jsonl, summary.json and the checkpoints. Incomplete lines
// are ignored until they are complete; invalid lines are ignored.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "parallel/base/loss_terms.h"

namespace headroom::records {

// Parses JSON. Returns a discarded value if the text is invalid or has more
// than 64 levels of nesting, because a value is written recursively.
nlohmann::ordered_json shallow_json(std::string_view text);

// The text under `key`; "" if the member is missing or not a text.
std::string text_member(const nlohmann::ordered_json& object, const char* key);

// The loss terms that `object` has as numbers.
NamedLosses losses_in(const nlohmann::ordered_json& object);

// The text of a regular file of at most kLargestWhole bytes; "" if there is
// none, or if it cannot be read.
std::string file_text(const std::filesystem::path& file);

// The number of bytes at a file's end that are read for its last lines.
inline constexpr size_t kLastBytes = 4 << 20;

// The complete lines among the file's last `most_bytes`, each with its line
// feed.
std::string last_lines(const std::filesystem::path& file, size_t most_bytes);

// The complete lines of `text`, without their line feeds. The results point
// into `text`.
std::vector<std::string_view> lines_of(std::string_view text);

// A line of steps.jsonl with an empty list of samples. That list is most of the
// line, so the rest is parsed several times faster.
std::string without_samples(std::string_view line);

// The JSON object that a file such as summary.json has; an empty object if
// there is none.
nlohmann::ordered_json object_in(const std::filesystem::path& file);

// The steps of the finished checkpoints, ascending. A finished checkpoint has a
// manifest, which is written last. Returns an empty list while the folder still
// has an older run's files.
std::vector<int64_t> checkpoints_in(const std::filesystem::path& run_directory);

// The samples of a large batch: positions in the order of an epoch's samples.
struct SampleRange {
  uint64_t seed = 0;
  int64_t epoch = 0, begin = 0, end = 0;
  bool operator==(const SampleRange&) const = default;
};

// A line of steps.jsonl. Members that the line lacks are nullopt, or NaN.
struct StepLine {
  struct Rank {
    int rank = 0;
    double predicted_peak_bytes = 0, measured_peak_bytes = 0;
  };
  int64_t step = 0;
  std::optional<int64_t> epoch, generation;
  std::optional<int64_t> epoch_samples;  // the size of the data set
  double loss = 0;
  NamedLosses losses = {};  // those that the line has
  double grad_norm = 0, images_per_second = 0;
  double lr = 0;  // the rate of the first parameter group
  std::vector<Rank> memory = {};
  bool has_samples = false;  // `samples` was read and has only numbers
  std::vector<int64_t> samples = {};
  // Instead of `samples`, in a run of large batches.
  std::optional<SampleRange> range = {};
};
// The list of samples is most of a line: without it a line is read several
// times faster. Returns nullopt if the line is not a step.
enum class Samples { kLeftOut, kRead };
std::optional<StepLine> step_line(std::string_view line, Samples samples);
// The last step of steps.jsonl, without its samples.
std::optional<StepLine> last_step(const std::filesystem::path& run_directory);

struct EventLine {
  std::string kind;
  int64_t sequence = 0, step = 0;
  int rank = -1;
  std::string reason, time;
  bool warning = false;
  // Only events of some kinds have these members.
  std::optional<int64_t> epoch = {}, generation = {}, exit_code = {};
  std::string state = {};
  std::string json = {};  // the whole line
};
// The last events of a run, at most `most`, oldest first. Reads only the file's
// last 4 MiB.
std::deque<EventLine> last_events(const std::filesystem::path& run_directory,
                                  size_t most);

}  // namespace headroom::records
