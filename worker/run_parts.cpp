#include "worker/run_parts.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "configs/augment_place.h"
#include "configs/memory/memory_request.h"
#include "configs/model_record.h"
#include "parallel/base/check.h"
#include "parallel/base/convolution_workspaces.h"
#include "proto/plan_json.h"
#include "worker/checkpoint.h"
#include "worker/data/sampler.h"
#include "worker/data/synthetic.h"
#include "worker/gather.h"
#include "worker/model/weights.h"
#include "worker/parallelize.h"
#include "worker/rank_context.h"
#include "worker/replicate.h"
#include "worker/state_restore.h"

namespace headroom {

namespace {

// A process that joins a run reads files that may have changed since it began.
RunInputs& read_once(CarriedState& carried, const RunConfig& config,
                     const Assignment& assignment) {
  if (carried.inputs) return *carried.inputs;
  carried.inputs = std::make_shared<RunInputs>(read_inputs(config));
  if (continues_run(config, assignment)) {
    const auto recorded = recorded_model(assignment.run_directory);
    if (recorded) {
      require_same_model(*recorded, carried.inputs->table,
                         carried.inputs->model, assignment.run_directory);
    }
  }
  return *carried.inputs;
}

}  // namespace

RunParts::RunParts(const Assignment& given, CoordinatorClient& coordinator,
                   const ComputeDevice& where, DeviceFootprint& taken,
                   CarriedState& from_before)
    : assignment(given),
      device(where),
      footprint(taken),
      client(coordinator),
      config(parse_run_config(given.run_config_yaml, "run.yaml")),
      carried(from_before),
      inputs(read_once(from_before, config, given)),
      memory(memory_request(config, given.plan, rows_of_model())),
      checkpoint_steps(given.resume_checkpoint.empty() ? 0
                                                       : given.resume_steps) {}

std::vector<RowCost> RunParts::rows_of_model() const {
  ModelTable table = inputs.table;
  table.num_classes = static_cast<int>(inputs.num_classes());
  return row_costs(table);
}

// On a device --memory-limit is for all that this process has there.
void RunParts::bound_memory() {
  if (!device.is_cpu()) {
    before_steps.emplace(device);
    memory.workspaces = &convolution_workspaces();
    segments = step_segments(
        memory, coordinates_of(assignment.plan.layout, assignment.rank));
    // Several may find a plan that splits more.
    if (assignment.world_size == 1) {
      require_room(assignment.rank, segments, footprint,
                   room_now(device, config.memory_limit, footprint));
    }
  }
  if (config.memory_limit > 0) {
    device.memory().set_limit(
        std::max<int64_t>(1, config.memory_limit - footprint.total()));
  }
}

void RunParts::prepare(Communicator& communicator) {
  bound_memory();
  if (inputs.training) {
    require_same_on_all_ranks(communicator, inputs.training->digest(),
                              "the training images and labels");
  }
  mesh = std::make_unique<Mesh>(communicator, assignment.plan.layout);
  if (!config.teacher.empty()) teacher = Teacher::open(config, device);
  TrainingStateOptions options;
  options.num_classes = inputs.num_classes();
  options.scalar_type = scalar_type_of(config.precision);
  options.map_type = map_type_of(config.precision);
  options.seed = config.seed;
  options.freeze = config.freeze;
  options.optimizer = parse_optimizer(config.optimizer);
  options.zero_stage = assignment.plan.zero_stage;
  options.device = device;
  options.mesh = mesh.get();
  options.rows = rows_of_stage(assignment.plan, mesh->here.pipeline_stage,
                               static_cast<int64_t>(inputs.table.rows.size()));
  options.fill = [&](LayerGraph& model) { fill_model(communicator, model); };
  state = std::make_unique<TrainingState>(inputs.table, options);
  if (teacher) teacher->check(state->model());

  const int64_t batch = config.global_batch_size;
  steps_in_epoch = inputs.training
                       ? steps_per_epoch(inputs.training->size(), batch)
                       : kSyntheticStepsPerEpoch;
  schedule = {config.hyp, config.epochs, steps_in_epoch, batch, config.cos_lr};
  schedule.warms_momentum = options.optimizer == OptimizerKind::kSgd;
  const LoaderOptions sizes = loader_options(config, state->model());
  gains = scale_gains(
      config.hyp, static_cast<int64_t>(state->model().levels().size()),
      inputs.num_classes(), std::max(sizes.image_height, sizes.image_width),
      config.label_smoothing);
  recorder = std::make_unique<RunRecorder>(
      RunRecorder::Subject{config, assignment, inputs, *state, steps_in_epoch,
                           images_in_epoch(), restored_line},
      client);
  recorder->set_mesh(mesh.get());
  resume();
  begin_copies();
  saver = std::make_unique<CheckpointSaver>(
      CheckpointSaver::Options{
          RunDirectory(assignment.run_directory).checkpoints(),
          plan_to_json(assignment.plan), config.keep_checkpoints,
          host.copies_state},
      *state, *mesh);
  memory.fetches_ahead = mesh->data->gathers_in_background();
  pass_lists = record_exchanges();
}

void RunParts::begin_pictures() {
  if (assignment.rank != 0 || config.noplots || !host.draws_pictures) return;
  RunPictures::Subject subject;
  subject.folder = assignment.run_directory;
  subject.training =
      training_options(config, assignment.plan, inputs, state->model(), *mesh);
  if (inputs.validation) {
    subject.validation = validation_options(
        config, assignment.plan, *inputs.validation, state->model(), *mesh);
  }
  subject.say = [this](const std::string& line) {
    client.report_event({"picture", 0, 0, line, "", true});
  };
  pictures = std::make_unique<RunPictures>(std::move(subject));
  pictures->begin();
}

// Also of what the ranks have before their first step.
void RunParts::begin_copies() {
  if (state->is_whole()) return;
  at::Tensor most = at::empty({1}, at::kLong);
  most.fill_(assignment.local_world_size);
  mesh->world.all_reduce(most, ReduceOp::kMax);
  buddies = std::make_unique<BuddyCopies>(
      mesh->world,
      buddy_shift(mesh->world.size(),
                  static_cast<int>(most.const_data_ptr<int64_t>()[0])));
  if (committed() > 0) buddies->after_commit(*state, restored_line);
}

// Weights to start from: read by rank 0, the same on every rank.
void RunParts::fill_model(Communicator& communicator, LayerGraph& model) {
  // Also where a generation before this one may have left nothing to go on
  // from.
  if (assignment.rank == 0 && config.resume.empty() &&
      !config.weights.empty()) {
    const LoadReport report =
        load_weights(config.weights, model, {LoadMode::kTransfer, true});
    if (assignment.generation == 1) {
      client.report_event({"weights", 0, 0, to_string(report, config.weights),
                           "", report.transferred * 2 < report.total});
    }
  }
  replicate(communicator, model);
}

// The checkpoint; then the run directory, last of all checks.
void RunParts::resume() {
  if (continues_run(config, assignment) && !restore() && assignment.rank == 0 &&
      assignment.resume_steps > 0) {
    client.report_event(
        {"resume", 0, 0,
         "the state is lost with those who had it, and there is no checkpoint: "
         "the run begins again",
         "", true});
  }
  has_state = true;
  note_data();
  // Of a run's first steps: a later generation would write over them.
  if (!config.memory_trace.empty() && assignment.generation == 1) {
    tracer = std::make_unique<MemoryTracer>(config.memory_trace,
                                            config.memory_trace_steps,
                                            assignment.rank, device.memory());
  }
  share_host_memory();
  if (assignment.rank != 0) return;
  const int64_t asked = num_steps(config, steps_in_epoch);
  if (assignment.generation == 1 && committed() >= asked &&
      !epoch_is_unrecorded()) {
    throw Error("resume",
                "this run has committed " + std::to_string(committed()) +
                    " steps and was asked for " + std::to_string(asked),
                config.max_steps > 0 ? "give a larger --max-steps"
                                     : "give a larger --epochs");
  }
  recorder->open();
}

bool RunParts::restore() {
  const std::filesystem::path checkpoints =
      RunDirectory(assignment.run_directory).checkpoints();
  const int64_t saved = std::stoll(broadcast_bytes(
      mesh->world, std::to_string(newest_checkpoint(checkpoints)), 0));
  if (assignment.generation > 1) {
    const auto restored = restore_state(carried.held, *state, saved);
    if (restored) {
      checkpoint_steps = saved;
      restored_line = restored->newest_line;
      if (assignment.rank == 0) {
        client.report_event({"resume", committed(), 0,
                             "goes on after " + std::to_string(committed()) +
                                 " steps, from the workers' memory",
                             "", false});
      }
      return true;
    }
    if (saved == 0 && config.resume.empty()) return false;
  }
  memory.resumes = true;
  const LoadedCheckpoint loaded =
      load_newest_checkpoint(checkpoints, *state, mesh.get());
  checkpoint_steps = committed();
  for (const std::string& fault : loaded.damaged) {
    client.report_event({"checkpoint", committed(), 0,
                         fault + "; the one before is used", "", true});
  }
  if (assignment.rank == 0) {
    client.report_event({"resume", committed(), 0,
                         "resumed from " + loaded.folder.string(), "", false});
  }
  return true;
}

void RunParts::note_data() {
  if (!inputs.training) return;
  const TrainingData before = state->counters.data;
  const TrainingData now = {inputs.training->size(), inputs.training->digest()};
  state->counters.data = now;
  const std::string change =
      data_change(before, now, committed(), steps_in_epoch);
  if (assignment.rank != 0 || change.empty()) return;
  client.report_event({"data", committed(), 0, change, "", true});
}

void RunParts::share_host_memory() {
  if (!inputs.training) return;
  HostMemory needed = host_memory_of(config, assignment.plan, inputs,
                                     state->model(), *mesh, rows_of_model());
  host = host_shares(config.host_memory_limit, needed);
  if (!host.copies_state) needed.state_copy = 0;
  if (!host.draws_pictures) needed.pictures = 0;
  if (assignment.rank != 0) return;
  client.report_event(
      {"host_memory", committed(), 0, describe(needed), "", false});
  if (device.is_cpu()) return;
  const AugmentPlace place = augment_place(config);
  client.report_event(
      {"augment_on", committed(), 0,
       std::string("samples are rendered ") +
           (place.on_device ? "on the device" : "by the loader's threads") +
           ": " + place.reason,
       "", false});
}

// Needed where passes exchange with other ranks.
PassLists RunParts::record_exchanges() const {
  if (mesh->replicas->size() == 1) return {};
  return record_pass_lists(inputs.table, inputs.num_classes(),
                           state->scalar_type(), state->model().kept_rows(),
                           config.freeze, mesh->spatial->size() > 1);
}

}  // namespace headroom
