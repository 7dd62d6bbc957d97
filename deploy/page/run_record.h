// RunRecord: a run directory as the JSON document that page.js reads.
//
// The data come from the run's files: run.yaml, plan.json, steps.jsonl,
// results.csv, events.jsonl, summary.json, checkpoints and pictures. If there
// is a live status, its state, ranks and progress are used instead. Files are
// read again only after they changed, and memory is bounded for files of any
// size.
//
// Texts are UTF-8 with invalid bytes replaced; unknown numbers are null.
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

// A run that is planned but not started.
struct PlannedRun {
  std::string name;
  configs::RunConfig config;
  plan::Plan plan;
  std::string verdict;  // whether it fits, and how
  std::string command;  // the command that starts it
  // A further text about the plan, shown in a monospaced font.
  struct Detail {
    std::string title, text;
  };
  std::vector<Detail> details;
};

class RunRecord {
 public:
  // `id` names the run among others. Reads nothing yet.
  RunRecord(std::string id, std::filesystem::path run_directory);
  // A run that is only planned; refresh() has nothing to read.
  explicit RunRecord(const PlannedRun& planned);
  ~RunRecord();
  RunRecord(const RunRecord&) = delete;
  RunRecord& operator=(const RunRecord&) = delete;

  const std::string& id() const;
  const std::filesystem::path& directory() const;

  // Reads the files that changed. `live` is the run's own status or nullptr.
  // `is_held` is true if a coordinator writes the folder now.
  void refresh(const coordinator::RunStatus* live, bool is_held);

  // The result of refresh() as JSON texts: overview() for the list of runs,
  // run() for the whole run, changes() for the parts that training changes.
  std::string overview() const;
  // Returns the address of a picture; nullopt omits the picture.
  using PictureAddress =
      std::function<std::optional<std::string>(const Picture&)>;
  // `pictures_note` is a remark about the pictures; "" for none.
  std::string run(const PictureAddress& address,
                  const std::string& pictures_note = "") const;
  std::string changes() const;
  // About `points` steps from step `from` on, including every extreme.
  std::string steps(size_t points, int64_t from) const;
  // The predicted memory of a rank's step; nullopt if there is no such rank.
  std::optional<std::string> timeline(int rank) const;

  int world_size() const;  // 0 if the plan is unknown
  // The pictures of the folder, newest first.
  const std::vector<Picture>& pictures() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// `text` as a JSON string, in quotes.
std::string json_text(const std::string& text);

}  // namespace headroom::page
