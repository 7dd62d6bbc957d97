// RunShelf: the runs of a page. It reads each folder at most once a second, for
// any number of readers. Answers are shared texts, so a slow reader needs no
// copy of its own.
//
// Threads: any; one reads at a time.
#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/run/run_status.h"
#include "deploy/page/run_places.h"
#include "deploy/page/run_record.h"

namespace headroom::page {

using Text = std::shared_ptr<const std::string>;

struct RunSource {
  // Returns the runs that exist now. Called every five seconds; after an Error
  // the earlier list is kept.
  std::function<std::vector<RunPlace>()> places;
  // Whether a coordinator writes a folder; called if there is no live status.
  std::function<bool(const std::filesystem::path&)> is_held;
  // The live status of the run `live_id`; nullptr if there is none.
  std::function<std::optional<coordinator::RunStatus>()> live;
  std::string live_id;
  std::chrono::milliseconds refresh_interval{1000};
};

class RunShelf {
 public:
  // `may_stop` is true if the page can stop the live run; runs() reports it.
  // Throws what source.places() throws.
  explicit RunShelf(RunSource source, bool may_stop = false);

  // The answers to the calls under /api/; nullptr if there is no such run or
  // rank.
  Text runs();
  Text run(const std::string& id);
  Text steps(const std::string& id, size_t points, int64_t from);
  Text timeline(const std::string& id, int rank);
  Text changes(const std::string& id);
  // Makes the next call read the files again.
  void expire();
  // The path of a picture of the run; nullopt for any other name.
  std::optional<std::filesystem::path> picture(const std::string& id,
                                               const std::string& name);

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    RunPlace place;
    std::unique_ptr<RunRecord> record;
    std::optional<Clock::time_point> read;
    std::map<std::string, Text> answers;  // made from the files' content
  };

  void look_for_runs();
  Entry* find(const std::string& id);
  void refresh(Entry& entry);
  Text answer(
      const std::string& id, const std::string& name,
      const std::function<std::optional<std::string>(RunRecord&)>& make);

  const RunSource source_;
  const bool may_stop_;
  std::mutex mutex_;  // guards the following members
  std::vector<std::unique_ptr<Entry>> entries_;
  Clock::time_point looked_;
};

}  // namespace headroom::page
