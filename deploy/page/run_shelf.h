// RunShelf: the runs of a page. Each answer about a run is made at most once a
// second, for all readers. Answers are shared texts, so a slow reader needs no
// copy of its own. The memory is bounded: the runs whose answers are oldest are
// dropped, and read again when a reader asks for them.
//
// Threads: any; a mutex lets one thread at a time read.
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

#include "deploy/page/run_record.h"
#include "deploy/records/run_places.h"

namespace headroom::page {

using Text = std::shared_ptr<const std::string>;

struct RunSource {
  // Returns the runs that exist now. Called every five seconds; after an Error
  // the earlier list is kept.
  std::function<std::vector<records::RunPlace>()> places;
  // Whether a coordinator writes a folder; called if there is no live status.
  std::function<bool(const std::filesystem::path&)> is_held;
  // The status of the run `live_id`; nullopt if there is none.
  std::function<std::optional<LiveStatus>()> live;
  std::string live_id;
  std::chrono::milliseconds refresh_interval{1000};
};

class RunShelf {
 public:
  // `may_stop` is true if the page can stop the live run; news() reports it.
  // Throws what source.places() throws.
  explicit RunShelf(RunSource source, bool may_stop = false);

  // The JSON text that is sent to the page when it changes: {"live": id,
  // "may_stop", "status": of the live run, "runs": [{"id", "held": whether a
  // coordinator writes the folder, "stamp": stamp_of(folder), "steps": size of
  // steps.jsonl in bytes}]}. The page reads a run's document again when "stamp"
  // or "held" changes.
  std::string news();

  // The text that `make` returns for a run, made once for all readers that ask
  // the same `question`; nullptr if there is no such run, or `make` returns
  // nullopt.
  Text answer(
      const std::string& id, const std::string& question,
      const std::function<std::optional<std::string>(RunRecord&)>& make);
  // The path of a picture of the run; nullopt for any other name.
  std::optional<std::filesystem::path> picture(const std::string& id,
                                               const std::string& name);

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    explicit Entry(records::RunPlace place) : record(std::move(place)) {}
    RunRecord record;
    Clock::time_point read;
    std::map<std::string, Text> answers;  // made from the files that were read
  };

  void look_for_runs();
  Entry* find(const std::string& id);
  // While the runs take too much memory, frees the run whose files were read
  // the longest ago. Frees the answers of `kept`, and nothing else of it, if no
  // other run is left.
  void make_room(Entry& kept);
  std::optional<LiveStatus> live_of(const Entry& entry) const;
  bool is_held(const Entry& entry, bool has_live) const;

  const RunSource source_;
  const bool may_stop_;
  std::mutex mutex_;  // guards the following members
  std::vector<std::unique_ptr<Entry>> entries_;
  Clock::time_point looked_;
};

}  // namespace headroom::page
