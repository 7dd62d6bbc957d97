// RunRecord: one run for the page and the report, as JSON texts.
//
// A run's document has the texts of its files, which record.js parses, and the
// facts that only the program has:
//
//   id, directory, version
//   stamp         of the files when they were read (folder_contents.h)
//   live          the run's own status, as `headroom status --json` prints it
//   held          whether a coordinator writes the folder now
//   planned       {verdict, command} of a run that is not started
//   config        {batch, epochs, max_steps, best_metric, memory_limit}
//   plan          the members of plan.json that the page draws
//   events, results, summary     texts (folder_contents.h)
//   last_step, median_speed      of the newest steps (recent_steps.h)
//   pictures      [{name, time}]
//   checkpoints   [step]; resume is the command that continues the run
//
// live, planned, config and plan are null if there is none. While the folder
// still has an older run's files, results, summary and steps are empty.
//
// Threads: one at a time.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "configs/run_config.h"
#include "deploy/page/folder_contents.h"
#include "deploy/page/plan_record.h"
#include "deploy/page/step_history.h"
#include "deploy/records/recent_steps.h"
#include "deploy/records/run_places.h"
#include "parallel/plan/plan.h"

namespace headroom::page {

// A run that is planned but not started.
struct PlannedRun {
  std::string name;
  configs::RunConfig config;
  plan::Plan plan;
  std::string verdict;  // whether the plan fits, and how
  std::string command;  // the command that starts it
  // A further text about the plan, shown in a monospaced font.
  struct Detail {
    std::string title, text;
  };
  std::vector<Detail> details;
};

// The status that a run reports while it lasts.
struct LiveStatus {
  std::string json;  // the output of `headroom status --json`
  std::optional<plan::Plan> plan;
};

inline constexpr size_t kMostEvents = 500;

class RunRecord {
 public:
  // Reads no file yet.
  explicit RunRecord(records::RunPlace place);
  // A run that is only planned; refresh() has nothing to read.
  explicit RunRecord(const PlannedRun& planned);

  const records::RunPlace& place() const { return place_; }

  // Reads the files that define the run. `is_held` is true if a coordinator
  // writes the folder now.
  void refresh(const std::optional<LiveStatus>& live, bool is_held);

  // The document, with about `most_events` events.
  std::string document(size_t most_events);
  // JSON with the members of PlanRecord::words(), with "settings" ([flag,
  // value] pairs) and with "details" (further texts).
  std::string plan();
  // About `points` steps from step `from` on, including all extreme values.
  std::string steps(size_t points, int64_t from);
  // The predicted memory of a rank's step; nullopt if there is no such rank.
  std::optional<std::string> timeline(int rank);

  int world_size() const;  // 0 if the plan is unknown
  // The pictures of the folder, newest first.
  std::vector<Picture> pictures() const;

 private:
  void read_definition();
  bool has_older_results() const;

  records::RunPlace place_;
  std::optional<PlannedRun> planned_;
  std::optional<LiveStatus> live_;
  bool is_held_ = false;
  std::string run_text_, plan_text_;  // texts of run.yaml and plan.json
  std::optional<configs::RunConfig> config_;
  std::optional<plan::Plan> written_plan_;
  std::unique_ptr<PlanRecord> plan_;
  // Created when steps are first requested.
  std::unique_ptr<StepHistory> history_;
  // Created with the first document.
  std::unique_ptr<records::RecentSteps> recent_;
};

// The live status as JSON, without events and result; "null" if there is none.
std::string live_text(const std::optional<LiveStatus>& live);

// `text` as a JSON string, in quotes.
std::string json_text(const std::string& text);

}  // namespace headroom::page
