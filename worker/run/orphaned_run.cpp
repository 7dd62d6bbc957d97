#include "worker/run/orphaned_run.h"

#include <chrono>
#include <filesystem>

#include "parallel/base/run_files.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/checkpoint/orphaned_state.h"
#include "worker/run/run_directory.h"
#include "worker/run/run_recorder.h"

namespace headroom::run {
namespace {

// Shorter than the time that a worker has after it loses its agent
// (agent_loss.h).
constexpr std::chrono::seconds kTimeToSave{15};

}  // namespace

std::string save_orphaned_run(const CrossGenerationState& carried) {
  const int64_t held = carried.newest_step();
  if (!carried.orphan || held == 0) return "";
  const RunDirectory directory(carried.orphan->checkpoints.parent_path());
  const std::string what = cat("the state after ", counted(held, "step"));
  const std::filesystem::path steps = directory.root() / run_files::kSteps;
  if (directory.holds_older_run()) {
    return what + " is not saved: the older run in " +
           directory.root().string() + " is as it was";
  }
  if (!carried.run_id.empty()) {
    directory.set_aside_other_run(carried.run_id);
  }
  // A lost rank 0 may have committed one step more than its peers.
  const auto has_gone_on = [&] {
    return StepLog::has_lines_from(steps, held + 1);
  };
  if (has_gone_on()) {
    return what + " is not saved: the run has gone on without this worker";
  }
  const checkpoint::OrphanedSave saved =
      checkpoint::save_orphaned(*carried.orphan, carried.held, kTimeToSave);
  // This machine does not share the run's folder, which has these files.
  std::error_code error;
  const bool is_alone =
      saved.step > 0 &&
      !std::filesystem::exists(directory.root() / run_files::kRun, error);
  if (is_alone) {
    for (const auto& [name, text] : carried.definition) {
      directory.write_text(name, text);
    }
    write_folder_mark(directory.root(), carried.run_id, "alone");
  }
  if (saved.newest_line && !has_gone_on()) {
    const StepLog log(steps, saved.step, *saved.newest_line);
  }
  if (saved.step >= held) return what + " is saved";
  const std::string newest = saved.step == 0
                                 ? ", and there is no checkpoint"
                                 : cat("; the newest checkpoint is after ",
                                       counted(saved.step, "step"));
  return what + " is not saved: those who are left do not hold all of it" +
         newest;
}

}  // namespace headroom::run
