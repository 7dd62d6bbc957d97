#include "worker/run/run_context.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <filesystem>
#include <memory>
#include <string>
#include <utility>

#include "configs/layers/model_record.h"
#include "configs/run_config.h"
#include "parallel/base/check.h"
#include "parallel/base/convolution_workspaces.h"
#include "parallel/collectives/gather.h"
#include "parallel/plan/plan_json.h"
#include "parallel/predict/memory_request.h"
#include "worker/checkpoint/checkpoint.h"
#include "worker/checkpoint/state_restore.h"
#include "worker/data/loader/synthetic.h"
#include "worker/data/sampling/sampler.h"
#include "worker/step/apply_plan.h"
#include "worker/step/parallel_context.h"
#include "worker/weights/weights.h"

namespace headroom::run {

namespace {

// A process that joins a run reads files that may have changed since it began.
step::RunInputs& read_once(CrossGenerationState& carried,
                           const configs::RunConfig& config,
                           const control::Assignment& assignment) {
  if (carried.inputs) return *carried.inputs;
  carried.inputs = std::make_shared<step::RunInputs>(step::read_inputs(config));
  if (continues_run(config, assignment)) {
    const auto recorded = layers::recorded_model(assignment.run_directory);
    if (recorded) {
      layers::require_same_model(*recorded, carried.inputs->table,
                                 carried.inputs->model,
                                 assignment.run_directory);
    }
  }
  return *carried.inputs;
}

}  // namespace

RunContext::RunContext(const control::Assignment& given,
                       control::CoordinatorClient& coordinator,
                       const devices::ComputeDevice& where,
                       memory::DeviceFootprint& taken,
                       CrossGenerationState& from_before)
    : assignment(given),
      device(where),
      footprint(taken),
      client(coordinator),
      config(configs::parse_run_config(given.run_config_yaml, "run.yaml")),
      carried(from_before),
      inputs(read_once(from_before, config, given)),
      memory(predict::memory_request(config, given.plan, layers_of_model())),
      checkpoint_steps(given.resume_checkpoint.empty() ? 0
                                                       : given.resume_steps) {}

std::vector<layers::LayerCost> RunContext::layers_of_model() const {
  layers::ModelTable table = inputs.table;
  table.num_classes = static_cast<int>(inputs.num_classes());
  return layers::layer_costs(table);
}

// On a device --memory-limit is for all that this process has there.
void RunContext::bound_memory() {
  if (!device.is_cpu()) {
    before_steps.emplace(device);
    memory.workspaces = &convolution_workspaces();
    segments = memory::step_segments(
        memory, plan::coordinates_of(assignment.plan.layout, assignment.rank));
    // Several may find a plan that splits more.
    if (assignment.world_size == 1) {
      memory::require_room(assignment.rank, segments, footprint,
                           room_now(device, config.memory_limit, footprint));
    }
  }
  if (config.memory_limit > 0) {
    device.memory().set_limit(
        std::max<int64_t>(1, config.memory_limit - footprint.total()));
  }
}

void RunContext::prepare(collectives::Communicator& communicator) {
  bound_memory();
  if (inputs.training) {
    step::require_same_on_all_ranks(communicator, inputs.training->digest(),
                                    "the training images and labels");
  }
  mesh =
      std::make_unique<collectives::Mesh>(communicator, assignment.plan.layout);
  if (!config.teacher.empty()) teacher = step::Teacher::open(config, device);
  step::TrainingStateOptions options;
  options.num_classes = inputs.num_classes();
  options.scalar_type = step::scalar_type_of(config.precision);
  options.map_type = step::map_type_of(config.precision);
  options.seed = config.seed;
  options.freeze = config.freeze;
  options.optimizer = optim::parse_optimizer(config.optimizer);
  options.zero_stage = assignment.plan.zero_stage;
  options.device = device;
  options.mesh = mesh.get();
  options.layers =
      step::layers_of_stage(assignment.plan, mesh->here.pipeline_stage,
                            static_cast<int64_t>(inputs.table.layers.size()));
  options.fill = [&](model::LayerGraph& model) {
    fill_model(communicator, model);
  };
  state = std::make_unique<step::TrainingState>(inputs.table, options);
  if (teacher) teacher->check(state->model());

  const int64_t batch = config.global_batch_size;
  steps_in_epoch = inputs.training ? sampling::steps_per_epoch(
                                         inputs.training->size(), batch)
                                   : loader::kSyntheticStepsPerEpoch;
  schedule = {config.hyp, config.epochs, steps_in_epoch, batch, config.cos_lr};
  schedule.warms_momentum = options.optimizer == optim::OptimizerKind::kSgd;
  const loader::LoaderOptions sizes =
      step::loader_options(config, state->model());
  gains = loss::scale_gains(
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
  saver = std::make_unique<checkpoint::CheckpointSaver>(
      checkpoint::CheckpointSaver::Options{
          RunDirectory(assignment.run_directory).checkpoints(),
          plan::plan_to_json(assignment.plan), config.keep_checkpoints,
          host.copies_state},
      *state, *mesh);
  memory.fetches_ahead = mesh->data->gathers_in_background();
  collective_schedule = record_exchanges();
}

void RunContext::begin_pictures() {
  if (assignment.rank != 0 || config.noplots || !host.draws_pictures) return;
  RunPictures::Subject subject;
  subject.folder = assignment.run_directory;
  subject.training = validation::training_options(
      config, assignment.plan, inputs, state->model(), *mesh);
  if (inputs.validation) {
    subject.validation = validation::validation_options(
        config, assignment.plan, *inputs.validation, state->model(), *mesh);
  }
  subject.say = [this](const std::string& line) {
    client.report_event({"picture", 0, 0, line, "", true});
  };
  pictures = std::make_unique<RunPictures>(std::move(subject));
  pictures->begin();
}

// Also of what the ranks have before their first step.
void RunContext::begin_copies() {
  if (state->is_whole()) return;
  at::Tensor most = at::empty({1}, at::kLong);
  most.fill_(assignment.local_world_size);
  mesh->world.all_reduce(most, collectives::ReduceOp::kMax);
  buddies = std::make_unique<checkpoint::PeerReplicas>(
      mesh->world, checkpoint::buddy_shift(
                       mesh->world.size(),
                       static_cast<int>(most.const_data_ptr<int64_t>()[0])));
  if (committed() > 0) buddies->after_commit(*state, restored_line);
}

// Weights to start from: read by rank 0, the same on every rank.
void RunContext::fill_model(collectives::Communicator& communicator,
                            model::LayerGraph& model) {
  // Also where a generation before this one may have left nothing to go on
  // from.
  if (assignment.rank == 0 && config.resume.empty() &&
      !config.weights.empty()) {
    const weights::LoadReport report = weights::load_weights(
        config.weights, model, {weights::LoadMode::kTransfer, true});
    if (assignment.generation == 1) {
      client.report_event({"weights", 0, 0,
                           weights::to_string(report, config.weights), "",
                           report.transferred * 2 < report.total});
    }
  }
  step::replicate(communicator, model);
}

// The checkpoint; then the run directory, last of all checks.
void RunContext::resume() {
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
    tracer = std::make_unique<memory::MemoryTracer>(
        config.memory_trace, config.memory_trace_steps, assignment.rank,
        device.memory());
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

bool RunContext::restore() {
  const std::filesystem::path checkpoints =
      RunDirectory(assignment.run_directory).checkpoints();
  const int64_t saved = std::stoll(collectives::broadcast_bytes(
      mesh->world, std::to_string(checkpoint::newest_checkpoint(checkpoints)),
      0));
  if (assignment.generation > 1) {
    const auto restored =
        checkpoint::restore_state(carried.held, *state, saved);
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
  const checkpoint::LoadedCheckpoint loaded =
      checkpoint::load_newest_checkpoint(checkpoints, *state, mesh.get());
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

void RunContext::note_data() {
  if (!inputs.training) return;
  const step::TrainingData before = state->counters.data;
  const step::TrainingData now = {inputs.training->size(),
                                  inputs.training->digest()};
  state->counters.data = now;
  const std::string change =
      step::data_change(before, now, committed(), steps_in_epoch);
  if (assignment.rank != 0 || change.empty()) return;
  client.report_event({"data", committed(), 0, change, "", true});
}

void RunContext::share_host_memory() {
  if (!inputs.training) return;
  predict::HostMemory needed =
      validation::host_memory_of(config, assignment.plan, inputs,
                                 state->model(), *mesh, layers_of_model());
  host = predict::host_shares(config.host_memory_limit, needed);
  if (!host.copies_state) needed.state_copy = 0;
  if (!host.draws_pictures) needed.pictures = 0;
  if (assignment.rank != 0) return;
  client.report_event(
      {"host_memory", committed(), 0, validation::describe(needed), "", false});
  if (device.is_cpu()) return;
  const configs::AugmentPlace place = configs::augment_place(config);
  client.report_event(
      {"augment_on", committed(), 0,
       std::string("samples are rendered ") +
           (place.on_device ? "on the device" : "by the loader's threads") +
           ": " + place.reason,
       "", false});
}

// Needed where passes exchange with other ranks.
step::CollectiveSchedule RunContext::record_exchanges() const {
  if (mesh->replicas->size() == 1) return {};
  return step::record_pass_lists(
      inputs.table, inputs.num_classes(), state->scalar_type(),
      state->model().kept_layers(), config.freeze, mesh->spatial->size() > 1);
}

}  // namespace headroom::run
