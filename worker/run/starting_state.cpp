#include "worker/run/starting_state.h"

#include <ATen/ops/empty.h>

#include <filesystem>
#include <optional>

#include "configs/layers/detect_branches.h"
#include "configs/layers/model_record.h"
#include "parallel/base/check.h"
#include "parallel/base/log.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"
#include "parallel/collectives/gather.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/state_restore.h"
#include "worker/run/run_directory.h"
#include "worker/step/apply_plan.h"
#include "worker/weights/weights.h"

namespace headroom::run {
namespace {

void load_weights(const RunContext& run, model::LayerGraph& model) {
  const std::string& file = run.config.weights;
  const weights::LoadReport report =
      weights::load_weights(file, model,
                            {.mode = weights::LoadMode::kTransfer,
                             .keep_anchors = true,
                             .class_names = run.data.class_names});
  if (run.assignment.generation > 1) return;
  run.report(EventKind::kWeights, 0, weights::to_string(report, file),
             /*warning=*/report.transferred * 2 < report.total);
}

// Whether the folder on this machine is not that of another run. After a loss
// rank 0 may be on a machine that does not share the run's folder.
bool has_run_folder(const control::Assignment& assignment) {
  return assignment.generation == 1 || !assignment.folder.is_known() ||
         !belongs_to_other_run(assignment.run_directory,
                               assignment.folder.run_id);
}

// Returns nullopt if there is no state to continue from.
std::optional<StartingPoint> restore_newest(
    const RunContext& run,
    const std::vector<checkpoint::HostStateSnapshot>& held,
    step::TrainingState& state) {
  const control::Assignment& assignment = run.assignment;
  const int64_t& committed = state.counters.committed_steps;
  const RunDirectory directory(assignment.run_directory);
  const std::filesystem::path checkpoints = directory.checkpoints();
  const bool has_own =
      has_run_folder(assignment) &&
      (!run.config.resume.empty() || !directory.holds_older_run());
  const auto of_root = [&](const std::string& text) {
    return collectives::broadcast_bytes(state.mesh()->world, text, 0);
  };
  const int64_t saved = std::stoll(of_root(std::to_string(
      has_own ? checkpoint::newest_checkpoint(checkpoints) : 0)));
  const bool is_apart =
      of_root(is_elsewhere(assignment.run_directory, assignment.folder)
                  ? "1"
                  : "") == "1";
  if (assignment.generation > 1) {
    if (const auto restored = checkpoint::restore_state(held, state, saved)) {
      if (assignment.rank == 0) {
        run.report(EventKind::kResume, committed,
                   "goes on after " + counted(committed, "step") +
                       ", from the workers' memory");
      }
      return StartingPoint{false, saved, restored->newest_line};
    }
    if (is_apart) {
      const FolderPlace& place = assignment.folder;
      throw Error("resume",
                  "no process has a state to go on from; the checkpoints are "
                  "in " +
                      assignment.run_directory + " on " + place.hostname +
                      ", which rank 0's machine does not share",
                  "type there: headroom train --resume " +
                      shell_word(assignment.run_directory),
                  ExitCode::kResource);
    }
    if (saved == 0 && run.config.resume.empty()) return std::nullopt;
  }
  const checkpoint::LoadedCheckpoint loaded =
      checkpoint::load_newest_checkpoint(checkpoints, state, state.mesh());
  for (const std::string& fault : loaded.damaged) {
    run.report(EventKind::kCheckpoint, committed,
               fault + "; the one before is used", /*warning=*/true);
  }
  if (assignment.rank == 0) {
    run.report(EventKind::kResume, committed,
               "resumed from " + loaded.folder.string());
  }
  return StartingPoint{true, committed, ""};
}

}  // namespace

StartingPoint announced_point(const control::Assignment& assignment) {
  const bool has_checkpoint = !assignment.resume_checkpoint.empty();
  return {false, has_checkpoint ? assignment.resume_steps : 0, ""};
}

step::RunData& read_once(CrossGenerationState& carried,
                         const configs::RunConfig& config,
                         const control::Assignment& assignment) {
  if (carried.data) return *carried.data;
  carried.data = std::make_unique<step::RunData>(
      step::read_data(config, carried.shared.index));
  if (!carried.data->sharing_problem.empty()) {
    log::warn(carried.data->sharing_problem);
  }
  if (!config.resume.empty() ||
      (assignment.generation > 1 && has_run_folder(assignment) &&
       !RunDirectory(assignment.run_directory).holds_older_run())) {
    const auto recorded = layers::recorded_model(assignment.run_directory);
    if (recorded) {
      layers::require_same_model(*recorded, carried.data->table,
                                 carried.data->model, assignment.run_directory);
    }
  }
  return *carried.data;
}

std::unique_ptr<step::TrainingState> fresh_state(const RunContext& run,
                                                 collectives::Mesh& mesh) {
  const configs::RunConfig& config = run.config;
  const control::Assignment& assignment = run.assignment;
  step::TrainingStateOptions options;
  options.num_classes = run.data.num_classes();
  options.scalar_type = step::scalar_type_of(config.precision);
  options.map_type = step::map_type_of(config.precision);
  options.seed = config.seed;
  options.freeze = config.freeze;
  HEADROOM_CHECK(config.optimizer != configs::OptimizerKind::kAuto,
                 "the optimizer auto was not replaced");
  options.optimizer = config.optimizer;
  options.zero_stage = assignment.plan.zero_stage;
  options.device = run.device;
  options.mesh = &mesh;
  options.layers =
      step::layers_of_stage(assignment.plan, mesh.here.pipeline_stage,
                            layers::num_layers(run.data.table));
  options.fill = [&](model::LayerGraph& model) {
    // Weights are loaded in later generations too, because the first generation
    // may have ended without a state.
    if (assignment.rank == 0 && config.resume.empty() &&
        !config.weights.empty()) {
      load_weights(run, model);
    }
    step::replicate(mesh.world, model);
  };
  return std::make_unique<step::TrainingState>(run.data.table, options);
}

StartingPoint restore(const RunContext& run,
                      const std::vector<checkpoint::HostStateSnapshot>& held,
                      step::TrainingState& state) {
  const control::Assignment& assignment = run.assignment;
  const StartingPoint fresh = announced_point(assignment);
  if (!run.continues()) return fresh;
  if (auto restored = restore_newest(run, held, state)) return *restored;
  if (assignment.rank == 0 && assignment.resume_steps > 0) {
    run.report(EventKind::kResume, 0,
               "no process has a state to go on from, and there is no "
               "checkpoint: the run begins again",
               /*warning=*/true);
  }
  return fresh;
}

void note_data(const RunContext& run, step::TrainingCounters& counters) {
  const labels::Dataset& dataset = *run.data.training;
  const step::TrainingData before = counters.data;
  counters.data = {dataset.size(), dataset.digest()};
  const std::string change = data_change(
      before, counters.data, counters.committed_steps, run.steps_in_epoch);
  if (run.assignment.rank != 0 || change.empty()) return;
  run.report(EventKind::kData, counters.committed_steps, change,
             /*warning=*/true);
}

std::string data_change(const step::TrainingData& before,
                        const step::TrainingData& now, int64_t committed,
                        int64_t steps_in_epoch) {
  if (before.images == 0 || before == now) return "";
  if (before.images == now.images) {
    return "the " + counted(now.images, "training image") +
           " of this start or their labels are not those that the run had";
  }
  return cat("the run had ", counted(before.images, "training image"),
             " and goes on with ", now.images, ": an epoch is ",
             counted(steps_in_epoch, "step"), " now, and after ", committed,
             " this is epoch ", committed / steps_in_epoch + 1);
}

std::unique_ptr<checkpoint::PeerReplicas> begin_copies(
    const RunContext& run, step::TrainingState& state) {
  if (state.is_whole()) return nullptr;
  collectives::Communicator& world = state.mesh()->world;
  at::Tensor most = at::empty({1}, at::kLong);
  most.fill_(run.assignment.local_world_size);
  world.all_reduce(most, collectives::ReduceOp::kMax);
  auto copies = std::make_unique<checkpoint::PeerReplicas>(
      world,
      checkpoint::buddy_shift(
          world.size(), static_cast<int>(most.const_data_ptr<int64_t>()[0])),
      state);
  if (state.counters.committed_steps > 0) copies->after_commit();
  return copies;
}

}  // namespace headroom::run
