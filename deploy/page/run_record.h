// RunRecord: a run directory as the page shows it, in the JSON that page.js
// reads.
//
// Everything comes from the run's files: run.yaml, plan.json, steps.jsonl,
// results.csv, events.jsonl, summary.json, checkpoints and pictures. What a
// live status says of state, ranks and progress outranks them. Files are read
// again only where they changed, and memory is bounded whatever their sizes.
//
// Texts are UTF-8 with other bytes replaced; unknown numbers are null.
//
// Threads: one at a time.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "configs/run_config.h"
#include "coordinator/run/run_status.h"
#include "deploy/page/folder_contents.h"
#include "parallel/plan/plan.h"

namespace headroom::page {

// A run that is planned and not started.
struct PlannedRun {
  std::string name;
  configs::RunConfig config;
  plan::Plan plan;
  std::string verdict;  // whether it fits, and how
  std::string command;  // what starts it
  // What else is said of the plan, to be shown in a font of equal widths.
  struct Detail {
    std::string title, text;
  };
  std::vector<Detail> details;
};

class RunRecord {
 public:
  // `id` names the run among others. Reads nothing yet.
  RunRecord(std::string id, std::filesystem::path run_directory);
  // A run that nobody has started. There is nothing to refresh.
  explicit RunRecord(const PlannedRun& planned);
  ~RunRecord();
  RunRecord(const RunRecord&) = delete;
  RunRecord& operator=(const RunRecord&) = delete;

  const std::string& id() const;
  const std::filesystem::path& directory() const;

  // Reads what changed. `live`: the run's own status, null where nobody has
  // it. `is_held`: a coordinator writes the folder now.
  void refresh(const coordinator::RunStatus* live, bool is_held);

  // What refresh() found, as JSON texts: a line of the list of runs; all of
  // the run; what changes while it trains.
  std::string overview() const;
  // Where a picture is fetched from; nothing leaves the picture out.
  using PictureAddress =
      std::function<std::optional<std::string>(const Picture&)>;
  // `pictures_note`: what to say of the pictures; "" for nothing.
  std::string run(const PictureAddress& address,
                  const std::string& pictures_note = "") const;
  std::string changes() const;
  // About `points` steps from step `from` on, with every extreme.
  std::string steps(size_t points, int64_t from) const;
  // The predicted memory of a rank's step. Nothing for a rank that is none.
  std::optional<std::string> timeline(int rank) const;

  int world_size() const;  // 0 where the plan is not known
  // The pictures of the folder, the newest first.
  const std::vector<Picture>& pictures() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// `text` as a JSON string, in quotes.
std::string json_text(const std::string& text);

}  // namespace headroom::page
