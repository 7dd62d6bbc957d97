#include "worker/run/starting_state.h"

#include <ATen/ops/empty.h>

#include <filesystem>
#include <optional>

#include "configs/layers/model_record.h"
#include "parallel/base/text.h"
#include "parallel/collectives/gather.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/state_restore.h"
#include "worker/run/run_directory.h"
#include "worker/step/apply_plan.h"
#include "worker/weights/weights.h"

namespace headroom::run {
namespace {

void load_weights(const StateRequest& request, model::LayerGraph& model) {
  const std::string& file = request.config.weights;
  const weights::LoadReport report =
      weights::load_weights(file, model, {weights::LoadMode::kTransfer, true});
  if (request.assignment.generation > 1) return;
  request.client.report_event(
      {.event = EventKind::kWeights,
       .step = 0,
       .rank = 0,
       .reason = weights::to_string(report, file),
       .warning = report.transferred * 2 < report.total});
}

// Nothing: there is no state to go on from.
std::optional<StartingPoint> restore_newest(
    const StateRequest& request,
    const std::vector<checkpoint::HostStateSnapshot>& held,
    step::TrainingState& state) {
  const control::Assignment& assignment = request.assignment;
  const int64_t& committed = state.counters.committed_steps;
  const RunDirectory directory(assignment.run_directory);
  const std::filesystem::path checkpoints = directory.checkpoints();
  const bool has_own =
      !request.config.resume.empty() || !directory.holds_older_run();
  const int64_t saved = std::stoll(collectives::broadcast_bytes(
      request.mesh.world,
      std::to_string(has_own ? checkpoint::newest_checkpoint(checkpoints) : 0),
      0));
  if (assignment.generation > 1) {
    if (const auto restored = checkpoint::restore_state(held, state, saved)) {
      if (assignment.rank == 0) {
        request.client.report_event(
            {.event = EventKind::kResume,
             .step = committed,
             .rank = 0,
             .reason = cat("goes on after ", committed,
                           " steps, from the workers' memory")});
      }
      return StartingPoint{false, saved, restored->newest_line};
    }
    if (saved == 0 && request.config.resume.empty()) return std::nullopt;
  }
  const checkpoint::LoadedCheckpoint loaded =
      checkpoint::load_newest_checkpoint(checkpoints, state, &request.mesh);
  for (const std::string& fault : loaded.damaged) {
    request.client.report_event({.event = EventKind::kCheckpoint,
                                 .step = committed,
                                 .rank = 0,
                                 .reason = fault + "; the one before is used",
                                 .warning = true});
  }
  if (assignment.rank == 0) {
    request.client.report_event(
        {.event = EventKind::kResume,
         .step = committed,
         .rank = 0,
         .reason = "resumed from " + loaded.folder.string()});
  }
  return StartingPoint{true, committed, ""};
}

}  // namespace

bool continues_run(const configs::RunConfig& config,
                   const control::Assignment& assignment) {
  return !config.resume.empty() || assignment.generation > 1;
}

StartingPoint announced_point(const control::Assignment& assignment) {
  const bool has_checkpoint = !assignment.resume_checkpoint.empty();
  return {false, has_checkpoint ? assignment.resume_steps : 0, ""};
}

step::RunInputs& read_once(CrossGenerationState& carried,
                           const configs::RunConfig& config,
                           const control::Assignment& assignment) {
  if (carried.inputs) return *carried.inputs;
  carried.inputs = std::make_shared<step::RunInputs>(step::read_inputs(config));
  if (continues_run(config, assignment) &&
      (!config.resume.empty() ||
       !RunDirectory(assignment.run_directory).holds_older_run())) {
    const auto recorded = layers::recorded_model(assignment.run_directory);
    if (recorded) {
      layers::require_same_model(*recorded, carried.inputs->table,
                                 carried.inputs->model,
                                 assignment.run_directory);
    }
  }
  return *carried.inputs;
}

std::unique_ptr<step::TrainingState> fresh_state(const StateRequest& request) {
  const configs::RunConfig& config = request.config;
  const control::Assignment& assignment = request.assignment;
  collectives::Mesh& mesh = request.mesh;
  step::TrainingStateOptions options;
  options.num_classes = request.inputs.num_classes();
  options.scalar_type = step::scalar_type_of(config.precision);
  options.map_type = step::map_type_of(config.precision);
  options.seed = config.seed;
  options.freeze = config.freeze;
  options.optimizer = config.optimizer;
  options.zero_stage = assignment.plan.zero_stage;
  options.device = request.device;
  options.mesh = &mesh;
  options.layers = step::layers_of_stage(
      assignment.plan, mesh.here.pipeline_stage,
      static_cast<int64_t>(request.inputs.table.layers.size()));
  options.fill = [&](model::LayerGraph& model) {
    // Also where an earlier generation may have left nothing to go on from.
    if (assignment.rank == 0 && config.resume.empty() &&
        !config.weights.empty()) {
      load_weights(request, model);
    }
    step::replicate(mesh.world, model);
  };
  return std::make_unique<step::TrainingState>(request.inputs.table, options);
}

StartingPoint restore(const StateRequest& request,
                      const std::vector<checkpoint::HostStateSnapshot>& held,
                      step::TrainingState& state) {
  const control::Assignment& assignment = request.assignment;
  const StartingPoint fresh = announced_point(assignment);
  if (!continues_run(request.config, assignment)) return fresh;
  if (auto restored = restore_newest(request, held, state)) return *restored;
  if (assignment.rank == 0 && assignment.resume_steps > 0) {
    request.client.report_event({.event = EventKind::kResume,
                                 .step = 0,
                                 .rank = 0,
                                 .reason =
                                     "the state is lost with those who had it, "
                                     "and there is no checkpoint: "
                                     "the run begins again",
                                 .warning = true});
  }
  return fresh;
}

void note_data(const StateRequest& request, int64_t steps_in_epoch,
               step::TrainingCounters& counters) {
  const labels::Dataset& dataset = *request.inputs.training;
  const step::TrainingData before = counters.data;
  counters.data = {dataset.size(), dataset.digest()};
  const std::string change = step::data_change(
      before, counters.data, counters.committed_steps, steps_in_epoch);
  if (request.assignment.rank != 0 || change.empty()) return;
  request.client.report_event({.event = EventKind::kData,
                               .step = counters.committed_steps,
                               .rank = 0,
                               .reason = change,
                               .warning = true});
}

std::unique_ptr<checkpoint::PeerReplicas> begin_copies(
    const control::Assignment& assignment, collectives::Mesh& mesh,
    const std::string& newest_line, step::TrainingState& state) {
  if (state.is_whole()) return nullptr;
  at::Tensor most = at::empty({1}, at::kLong);
  most.fill_(assignment.local_world_size);
  mesh.world.all_reduce(most, collectives::ReduceOp::kMax);
  auto copies = std::make_unique<checkpoint::PeerReplicas>(
      mesh.world, checkpoint::buddy_shift(
                      mesh.world.size(),
                      static_cast<int>(most.const_data_ptr<int64_t>()[0])));
  if (state.counters.committed_steps > 0) {
    copies->after_commit(state, newest_line);
  }
  return copies;
}

}  // namespace headroom::run
