// The files of a run directory that another process may still write, as plain
// values: events, epochs, pictures, checkpoints. Memory is bounded whatever
// their sizes.
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

// A file that is read again when it changed.
class WatchedFile {
 public:
  explicit WatchedFile(std::filesystem::path path) : path_(std::move(path)) {}
  const std::filesystem::path& path() const { return path_; }

  // The new content; nothing where it is as before. A file that is not there,
  // or above 16 MiB, is empty.
  std::optional<std::string> changed();

 private:
  std::filesystem::path path_;
  bool is_known_ = false;
  std::filesystem::file_time_type time_;
  int64_t size_ = 0;
};

// events.jsonl.
class EventList {
 public:
  explicit EventList(const std::filesystem::path& run_directory);

  void refresh();

  // The newest 500, the newest first: JSON texts whose "time" is in seconds of
  // the Unix epoch.
  const std::deque<std::string>& newest() const { return newest_; }
  int64_t count() const { return count_; }
  // When the first one happened; NaN where there is none.
  double started() const { return started_; }
  // The end of the run, where that is the newest event.
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

// results.csv: a line for each epoch; NaN where a cell is empty.
struct EpochTable {
  std::vector<std::string> columns;
  std::vector<std::vector<double>> rows;
  struct Best {
    double epoch = 0, map50 = 0, map = 0;
  };
  std::optional<Best> best;  // the epoch of the greatest fitness
};
EpochTable epoch_table(const std::string& csv);

struct Picture {
  std::string name;
  std::string kind;  // "validation", "training" or "curve"
  int64_t bytes = 0;
  int64_t time = 0;  // seconds of the Unix epoch at which it was written
};
// The newest 200 of the folder, the newest first.
std::vector<Picture> pictures_in(const std::filesystem::path& run_directory);

// The steps of finished checkpoints, ascending.
std::vector<int64_t> checkpoints_in(const std::filesystem::path& run_directory);

}  // namespace headroom::page
