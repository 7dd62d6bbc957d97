// The files of a run directory as plain values: events, epochs, pictures,
// checkpoints. Another process may still write them. Memory is bounded for
// files of any size.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <deque>
#include <filesystem>
#include <limits>
#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "deploy/records/line_follower.h"

namespace headroom::page {

// A file that is read again only after it changed.
class WatchedFile {
 public:
  explicit WatchedFile(std::filesystem::path path) : path_(std::move(path)) {}
  const std::filesystem::path& path() const { return path_; }

  // Returns the content if it is new, nullopt if it is unchanged. A missing
  // file, or one above 16 MiB, counts as empty.
  std::optional<std::string> changed();

 private:
  std::filesystem::path path_;
  bool is_known_ = false;
  std::filesystem::file_time_type time_;
  int64_t size_ = 0;
};

// The content of events.jsonl.
class EventList {
 public:
  explicit EventList(const std::filesystem::path& run_directory);

  void refresh();

  // The newest 500 events, newest first, as JSON texts with "time" in seconds.
  const std::deque<std::string>& newest() const { return newest_; }
  int64_t count() const { return count_; }
  // The time of the first event; NaN if there is none.
  double started() const { return started_; }
  // The end of the run; set if it is the newest event.
  struct End {
    int exit_code = 0;
    std::string reason;
  };
  const std::optional<End>& end() const { return end_; }
  // The workers of the newest generation, by rank.
  struct Worker {
    std::string hostname, worker_id;
  };
  const std::map<int, Worker>& workers() const { return workers_; }

 private:
  void forget();
  void take(std::string_view line);

  records::LineFollower follower_;
  std::deque<std::string> newest_;
  int64_t count_ = 0;
  double started_ = std::numeric_limits<double>::quiet_NaN();
  std::optional<End> end_;
  std::map<int, Worker> workers_;
};

// The content of results.csv: a row per epoch; NaN for an empty cell.
struct EpochTable {
  std::vector<std::string> columns;
  std::vector<std::vector<double>> rows;
  struct Best {
    double epoch = 0, map50 = 0, map = 0;
  };
  std::optional<Best> best;  // the epoch with the best fitness
};
EpochTable epoch_table(const std::string& csv);

struct Picture {
  std::string name;
  std::string kind;  // "validation", "training" or "curve"
  int64_t bytes = 0;
  int64_t time = 0;  // when it was written, in Unix seconds
};
// The newest 200 pictures of the folder, newest first.
std::vector<Picture> pictures_in(const std::filesystem::path& run_directory);

// The steps of complete checkpoints, ascending.
std::vector<int64_t> checkpoints_in(const std::filesystem::path& run_directory);

}  // namespace headroom::page
