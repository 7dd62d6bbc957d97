#include "worker/run/training_run.h"

#include <c10/util/Exception.h>

#include <chrono>
#include <optional>
#include <utility>

#include "configs/layers/layer_cost.h"
#include "configs/yaml/scalar.h"
#include "parallel/base/check.h"
#include "parallel/base/convolution_workspaces.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/collectives/communicator.h"
#include "parallel/collectives/mesh.h"
#include "parallel/plan/plan_json.h"
#include "parallel/predict/memory_request.h"
#include "parallel/predict/phase_memory.h"
#include "worker/checkpoint/checkpoint_saver.h"
#include "worker/checkpoint/peer_replicas.h"
#include "worker/control/agent_loss.h"
#include "worker/data/loader/synthetic.h"
#include "worker/data/sampling/sampler.h"
#include "worker/memory/box_bound_monitor.h"
#include "worker/memory/memory_trace.h"
#include "worker/run/epoch_end.h"
#include "worker/run/run_checkpoints.h"
#include "worker/run/run_device.h"
#include "worker/run/run_directory.h"
#include "worker/run/run_pictures.h"
#include "worker/run/run_recorder.h"
#include "worker/run/run_reports.h"
#include "worker/run/training_source.h"
#include "worker/step/apply_plan.h"
#include "worker/step/teacher.h"
#include "worker/step/trainer.h"
#include "worker/validation/run_loaders.h"
#include "worker/validation/validate.h"

namespace headroom::run {
namespace {

std::string lowered_scale_text(const step::StepResult& result) {
  return "the gradient of the loss times " +
         yaml::exact_text(*result.loss_scale) +
         " is not finite: the update is skipped, the next step takes " +
         yaml::exact_text(*result.loss_scale / 2);
}

std::vector<layers::LayerCost> layers_of(const step::RunInputs& inputs) {
  layers::ModelTable table = inputs.table;
  table.num_classes = static_cast<int>(inputs.num_classes());
  return layers::layer_costs(table);
}

optim::ScheduleOptions schedule_of(const configs::RunConfig& config,
                                   int64_t steps_in_epoch) {
  return {.hyp = config.hyp,
          .epochs = config.epochs,
          .steps_per_epoch = steps_in_epoch,
          .global_batch_size = config.global_batch_size,
          .cos_lr = config.cos_lr,
          .warms_momentum = config.optimizer == configs::OptimizerKind::kSgd};
}

}  // namespace

struct TrainingRun::Implementation {
  explicit Implementation(const Inputs& given);

  // An end where it ends here.
  RunOutcome run(collectives::Communicator& communicator);
  // Everything that may refuse the run; the run directory comes last of that.
  void prepare(collectives::Communicator& communicator);
  // What is borrowed from the mesh goes on over its new connections.
  // Collective.
  void reconnect();
  // No connection is made in a commit, which could not be taken back.
  void connect_shards() {
    if (state->is_sharded()) mesh->data->connect();
  }
  void make_trainer();
  void open_source();
  RunOutcome train();
  std::optional<RunOutcome> step();
  std::optional<RunOutcome> end_epoch();
  std::optional<RunOutcome> catch_up();

  // The parts of prepare().
  void restore_state();
  void share_host_memory();
  void require_steps_left() const;
  void keep_copies();
  void begin_pictures();
  void begin_reports();

  void note_step(const loader::Batch& batch, const step::StepResult& result,
                 double seconds);

  void tell(EventKind kind, const std::string& reason) {
    client.report_event(
        {.event = kind, .step = committed(), .rank = 0, .reason = reason});
  }

  int64_t committed() const { return state->counters.committed_steps; }
  int64_t images_in_epoch() const {
    return inputs.training ? inputs.training->size()
                           : steps_in_epoch * config.global_batch_size;
  }
  bool is_between_epochs() const {
    return run::is_between_epochs(committed(), steps_in_epoch);
  }
  bool epoch_is_unrecorded() const {
    return is_between_epochs() &&
           committed() / steps_in_epoch > state->counters.recorded_epochs;
  }
  // The newest committed step's.
  std::string newest_line() const {
    return newest.result.committed ? to_json_line(newest, images_in_epoch())
                                   : start.newest_line;
  }

  control::Assignment assignment;  // the newest
  const devices::ComputeDevice device;
  memory::DeviceFootprint& footprint;  // this process's part
  control::CoordinatorClient& client;
  step::FaultInjection& faults;
  const configs::RunConfig config;
  CrossGenerationState& carried;
  const step::RunInputs& inputs;  // carried
  const std::vector<layers::LayerCost> layers;
  predict::MemoryRequest memory;  // the run's question to the memory model
  const int64_t steps_in_epoch;
  const optim::ScheduleOptions schedule;
  StartingPoint start;

  // What prepare() makes, in this order: a peer may be lost on the way.
  std::optional<DeviceBudget> budget;
  std::unique_ptr<collectives::Mesh> mesh;
  std::unique_ptr<step::Teacher> teacher;      // null: none
  std::unique_ptr<step::TrainingState> state;  // once it is a committed one
  loss::LossGains gains;
  std::unique_ptr<RunRecorder> recorder;
  std::unique_ptr<memory::MemoryTracer> tracer;  // set while steps are recorded
  predict::HostShares host;  // shares of the loaders and of a copy of the state
  std::unique_ptr<checkpoint::PeerReplicas> buddies;  // null: state is whole
  std::unique_ptr<checkpoint::CheckpointSaver> saver;
  int64_t validation_parts = 0;
  std::unique_ptr<RunPictures> pictures;  // null: this rank draws none
  std::unique_ptr<RunReports> reports;
  std::unique_ptr<RunCheckpoints> checkpoints;
  std::unique_ptr<EpochEnd> epoch_end;
  std::unique_ptr<RunEnd> ending;
  std::unique_ptr<step::Trainer> trainer;
  std::optional<TrainingSource> source;  // the last: all is there
  // The batch of a step that is not committed yet, and whether the epoch's
  // images are drawn: a step that is tried again goes on from there.
  std::optional<loader::Batch> batch;
  bool epoch_is_open = false;
  bool needs_less = false;  // TrainingRun::needs_less, of a step

  StepRecord newest;     // known to every rank: rank 0 may be lost
  EpochWork epoch_work;  // the work of the epoch that has begun
  memory::BoxBoundMonitor labels{predict::label_bound(config)};
};

TrainingRun::Implementation::Implementation(const Inputs& given)
    : assignment(given.assignment),
      device(given.device),
      footprint(given.footprint),
      client(given.client),
      faults(given.faults),
      config(configs::parse_run_config(assignment.run_config_yaml,
                                       run_files::kRun)),
      carried(given.carried),
      inputs(read_once(carried, config, assignment)),
      layers(layers_of(inputs)),
      memory(predict::memory_request(config, assignment.plan, layers)),
      steps_in_epoch(inputs.training
                         ? sampling::steps_per_epoch(inputs.training->size(),
                                                     config.global_batch_size)
                         : loader::kSyntheticStepsPerEpoch),
      schedule(schedule_of(config, steps_in_epoch)),
      start(announced_point(assignment)) {
  if (!device.is_cpu()) memory.workspaces = &convolution_workspaces();
}

RunOutcome TrainingRun::Implementation::run(
    collectives::Communicator& communicator) {
  needs_less = false;
  if (source) {
    reconnect();
  } else {
    const memory::PhaseWatch start_up("start-up", device.memory());
    prepare(communicator);
    connect_shards();
    if (!buddies) carried.held.clear();  // else with the first copies
    reports->note_device();
    make_trainer();
    reports->note_memory(
        start_up.compare(predict::estimate_start_up(memory, mesh->here)));
    open_source();
  }
  if (const auto exhausted = trainer->begin_generation()) {
    return ending->leave_for_memory(*exhausted, trainer->shortfall());
  }
  validation_parts = trainer->ladder().validation_parts;
  return train();
}

void TrainingRun::Implementation::reconnect() {
  mesh->reconnect();
  connect_shards();
  saver->reconnect();
  if (buddies) buddies->reconnect(mesh->world, *state, newest_line());
}

void TrainingRun::Implementation::make_trainer() {
  trainer = std::make_unique<step::Trainer>(
      step::Trainer::Options{
          .gains = gains,
          .schedule = schedule,
          .plan = assignment.plan,
          .skip_non_finite = config.skip_non_finite,
          .faults = &faults,
          .host_memory_limit = config.host_memory_limit,
          .assign = step::loader_options(config, state->model()).assign,
          .memory = memory,
          .teacher = teacher.get(),
          .following = [this] { return source->batches().made_ahead(); },
          .captures_micro_batches = config.cuda_graphs,
          .labels = memory.labels,
          .ladder = carried.ladder_of(assignment.plan)},
      *state, *mesh);
}

void TrainingRun::Implementation::open_source() {
  source.emplace(TrainingSource::Inputs{.config = config,
                                        .plan = assignment.plan,
                                        .inputs = inputs,
                                        .device = device,
                                        .steps_in_epoch = steps_in_epoch,
                                        .host_memory_limit = host.training,
                                        .state = *state,
                                        .mesh = *mesh,
                                        .reports = *reports});
}

RunOutcome TrainingRun::Implementation::train() {
  if (epoch_is_unrecorded()) {  // the run was cut between steps and results
    if (auto ended = end_epoch()) return *ended;
  } else if (assignment.generation > 1) {
    if (auto ended = catch_up()) return *ended;
  }
  // Else workers of other agents hold the state.
  const agent_loss::Reprieve reprieve(assignment.has_one_agent);
  for (;;) {
    if (is_between_epochs()) state->start_epoch();
    if (!epoch_is_open) source->begin_epoch();
    epoch_is_open = true;
    do {
      if (auto ended = step()) return *ended;
    } while (!is_between_epochs());
    epoch_is_open = false;
    trainer->release_graphs();
    if (auto ended = end_epoch()) return *ended;
  }
}

void TrainingRun::Implementation::prepare(
    collectives::Communicator& communicator) {
  budget.emplace(DeviceBudget::Inputs{.device = device,
                                      .footprint = footprint,
                                      .request = memory,
                                      .memory_limit = config.memory_limit,
                                      .rank = assignment.rank,
                                      .world_size = assignment.world_size});
  if (inputs.training) {
    step::require_same_on_all_ranks(communicator, inputs.training->digest(),
                                    "the training images and labels");
  }
  mesh =
      std::make_unique<collectives::Mesh>(communicator, assignment.plan.layout);
  restore_state();
  // Only of a run's first steps: a later generation would write over them.
  if (!config.memory_trace.empty() && assignment.generation == 1) {
    tracer = std::make_unique<memory::MemoryTracer>(
        config.memory_trace, config.memory_trace_steps, assignment.rank,
        device.memory());
  }
  share_host_memory();
  if (assignment.rank == 0) {
    require_steps_left();
    recorder->open(start.newest_line);
  }
  keep_copies();
  memory.fetches_ahead = mesh->data->gathers_in_background();
  begin_pictures();
  begin_reports();
}

// Makes the state that the generation starts from; it becomes `state` once it
// is a committed one.
void TrainingRun::Implementation::restore_state() {
  if (!config.teacher.empty()) teacher = step::Teacher::open(config, device);
  const StateRequest request = {.config = config,
                                .assignment = assignment,
                                .inputs = inputs,
                                .device = device,
                                .mesh = *mesh,
                                .client = client};
  std::unique_ptr<step::TrainingState> fresh = fresh_state(request);
  if (teacher) teacher->check(fresh->model());
  gains = validation::loss_gains(config, fresh->model(),
                                 step::loader_options(config, fresh->model()));
  recorder = std::make_unique<RunRecorder>(
      RunRecorder::Subject{.config = config,
                           .assignment = assignment,
                           .inputs = inputs,
                           .state = *fresh,
                           .mesh = *mesh,
                           .network = carried.network,
                           .steps_in_epoch = steps_in_epoch,
                           .images_in_epoch = images_in_epoch()},
      client);
  start = restore(request, carried.held, *fresh);
  memory.resumes = start.is_from_checkpoint;
  state = std::move(fresh);
  if (inputs.training) note_data(request, steps_in_epoch, state->counters);
}

// Copies of the state: in other ranks' memory, where no rank has all of it, and
// on disk.
void TrainingRun::Implementation::keep_copies() {
  buddies = begin_copies(assignment, *mesh, start.newest_line, *state);
  saver = std::make_unique<checkpoint::CheckpointSaver>(
      checkpoint::CheckpointSaver::Options{
          .checkpoints = RunDirectory(assignment.run_directory).checkpoints(),
          .plan_json = plan::plan_to_json(assignment.plan),
          .keep = config.keep_checkpoints,
          .may_copy = host.copies_state},
      *state, *mesh);
}

void TrainingRun::Implementation::begin_pictures() {
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
    client.report_event({.event = EventKind::kPicture,
                         .rank = 0,
                         .reason = line,
                         .warning = true});
  };
  pictures = std::make_unique<RunPictures>(std::move(subject));
}

void TrainingRun::Implementation::begin_reports() {
  const loader::LoaderOptions sizes =
      step::loader_options(config, state->model());
  reports = std::make_unique<RunReports>(
      RunReports::Inputs{.config = config,
                         .rank = assignment.rank,
                         .counters = state->counters,
                         .steps_in_epoch = steps_in_epoch,
                         .num_steps = num_steps(config, steps_in_epoch),
                         .image_height = sizes.image_height,
                         .image_width = sizes.image_width,
                         .world = mesh->world,
                         .client = client,
                         .recorder = *recorder,
                         .device = *budget,
                         .faults = faults});
  checkpoints = std::make_unique<RunCheckpoints>(
      RunCheckpoints::Inputs{.counters = state->counters,
                             .memory = memory,
                             .rank = mesh->here,
                             .meter = device.memory(),
                             .saver = *saver,
                             .buddies = buddies.get(),
                             .recorder = *recorder,
                             .reports = *reports},
      start.checkpoint_steps);
  epoch_end = std::make_unique<EpochEnd>(
      EpochEnd::Inputs{.config = config,
                       .memory = memory,
                       .inputs = inputs,
                       .schedule = schedule,
                       .gains = gains,
                       .validation_parts = validation_parts,
                       .host_memory_limit = host.validation,
                       .state = *state,
                       .mesh = *mesh,
                       .recorder = *recorder,
                       .reports = *reports,
                       .pictures = pictures.get()});
  ending = std::make_unique<RunEnd>(
      RunEnd::Inputs{.config = config,
                     .assignment = assignment,
                     .state = *state,
                     .steps_in_epoch = steps_in_epoch,
                     .validates = inputs.validation.has_value(),
                     .buddies = buddies.get(),
                     .pictures = pictures.get(),
                     .client = client,
                     .recorder = *recorder,
                     .reports = *reports,
                     .checkpoints = *checkpoints,
                     .faults = faults});
}

void TrainingRun::Implementation::share_host_memory() {
  if (!inputs.training) return;
  predict::HostMemory needed = validation::host_memory_of(
      config, assignment.plan, inputs, state->model(), *mesh, layers);
  host = predict::host_shares(config.host_memory_limit, needed);
  if (!host.copies_state) needed.state_copy = 0;
  if (!host.draws_pictures) needed.pictures = 0;
  if (assignment.rank != 0) return;
  tell(EventKind::kHostMemory, validation::describe(needed));
  if (device.is_cpu()) return;
  const configs::AugmentPlace place = configs::augment_place(config);
  tell(EventKind::kAugmentOn,
       std::string("samples are rendered ") +
           (place.on_device ? "on the device" : "by the loader's threads") +
           ": " + place.reason);
}

// Checks a run that is started, not a later generation of it.
void TrainingRun::Implementation::require_steps_left() const {
  const int64_t asked = num_steps(config, steps_in_epoch);
  if (assignment.generation > 1 || epoch_is_unrecorded()) return;
  if (committed() < asked) return;
  throw Error("resume",
              cat("this run has committed ", counted(committed(), "step"),
                  " and was asked for ", asked),
              config.max_steps > 0 ? "give a larger --max-steps"
                                   : "give a larger --epochs");
}

std::optional<RunOutcome> TrainingRun::Implementation::step() {
  const auto start = std::chrono::steady_clock::now();
  if (tracer) tracer->begin_step();
  if (!this->batch) {
    this->batch = source->batches().next();
    if (const auto event = labels.look_at(*this->batch)) {
      reports->report(this->batch->step, *event);
    }
  }
  const loader::Batch& batch = *this->batch;
  checkpoints->settle();
  const step::StepResult result = trainer->train_step(batch, [&] {
    return step::Trainer::Requests{
        .stop = client.stop_requested(),
        .leave = client.leave_requested(assignment.generation),
        .save = agent_loss::has_happened(),
        .checkpoint = assignment.rank == 0 &&
                      is_checkpoint_due(config, checkpoints->age())};
  });
  if (tracer && tracer->end_step(mesh->world)) {
    if (assignment.rank == 0) tell(EventKind::kMemoryTrace, tracer->summary());
    tracer.reset();
  }
  for (const memory::StepEvent& event : result.events) {
    reports->report(batch.step, event);
  }
  if (!result.out_of_memory.empty()) {
    if (mesh->world.size() == 1) {
      return ending->leave_for_memory(/*failed_rank=*/0, trainer->shortfall());
    }
    needs_less = !trainer->ladder().is_exhausted;
    C10_THROW_ERROR(OutOfMemoryError, result.out_of_memory);
  }
  if (!result.committed) return ending->refuse_step(result, batch);
  if (result.lowered_scale && assignment.rank == 0) {
    reports->report(batch.step,
                    {EventKind::kLossScale, lowered_scale_text(result)});
  }
  const auto taken = std::chrono::steady_clock::now() - start;
  // Whatever fails from here on, the step is not done again.
  const loader::Batch done = *std::exchange(this->batch, std::nullopt);
  note_step(done, result, std::chrono::duration<double>(taken).count());
  reports->note_first_step();
  if (buddies) {
    buddies->after_commit(*state, newest_line());
    carried.held.clear();
  }

  if (result.verdict.save_requested) return ending->save_for_successors();
  if (is_between_epochs()) return std::nullopt;  // end_epoch
  if (const auto reason = ending->reason()) return ending->complete(*reason);
  if (result.verdict.stop_requested) {
    return ending->interrupt(cat("step ", committed()));
  }
  if (result.verdict.checkpoint_due ||
      is_checkpoint_scheduled(config, committed())) {
    trainer->release_graphs();
    checkpoints->begin();
  }
  if (result.verdict.leave_requested) return ending->leave_as_asked();
  return std::nullopt;
}

void TrainingRun::Implementation::note_step(const loader::Batch& batch,
                                            const step::StepResult& result,
                                            double seconds) {
  if (result.verdict.ok()) {
    state->counters.meter.add(result.box, result.obj, result.cls);
  }
  ++epoch_work.steps;
  epoch_work.images += batch.global_size;
  epoch_work.seconds += seconds;
  newest = {
      .step = batch.step,
      .epoch = batch.epoch,
      .generation = assignment.generation,
      .attempt = result.attempt,
      .seconds = seconds,
      .images_per_second = static_cast<double>(batch.global_size) / seconds,
      .samples = batch.global_samples,
      .result = result,
      .image_height = config.multi_scale ? batch.image_height : 0,
      .image_width = config.multi_scale ? batch.image_width : 0};
  recorder->record_step(newest);
  if (pictures) pictures->begin();
  reports->say_once(batch.faults);
  reports->commit(newest);
}

// What a finished epoch leaves, its checkpoint, and how the run goes on.
std::optional<RunOutcome> TrainingRun::Implementation::end_epoch() {
  epoch_end->record(epoch_work);
  epoch_work = {};
  if (const auto reason = ending->reason()) return ending->complete(*reason);
  const data_parallel::Verdict& agreed = newest.result.verdict;
  if (agreed.stop_requested) {
    return ending->interrupt(cat("epoch ", state->counters.recorded_epochs));
  }
  if (!config.nosave) {
    checkpoints->finish();  // an epoch's own is not skipped
    checkpoints->begin();
  }
  if (agreed.leave_requested) return ending->leave_as_asked();
  return std::nullopt;
}

// What was to follow the newest step, and was cut off with the generation
// before this one: the run's end, a checkpoint.
std::optional<RunOutcome> TrainingRun::Implementation::catch_up() {
  const int64_t saved = checkpoints->agreed_steps(mesh->world);
  if (const auto reason = ending->reason()) {
    return ending->catch_up(*reason, saved);
  }
  if (saved < newest_due_checkpoint(config, steps_in_epoch, committed())) {
    checkpoints->begin();
  }
  return std::nullopt;
}

TrainingRun::TrainingRun(const Inputs& inputs)
    : implementation_(std::make_unique<Implementation>(inputs)) {}

TrainingRun::~TrainingRun() = default;

RunOutcome TrainingRun::run(collectives::Communicator& communicator) {
  return implementation_->run(communicator);
}

RunOutcome TrainingRun::save_committed() {
  Implementation& run = *implementation_;
  HEADROOM_CHECK(holds_whole_state(), "a part of a state is no state");
  run.reports->leave_peers();
  run.recorder->take_over(run.newest);
  return run.ending->save_alone();
}

int64_t TrainingRun::checkpoint_steps() const {
  const Implementation& run = *implementation_;
  return run.checkpoints ? run.checkpoints->newest_steps()
                         : run.start.checkpoint_steps;
}

bool TrainingRun::holds_whole_state() const {
  return implementation_->ending && implementation_->state->is_whole();
}

void TrainingRun::hold_committed() {
  Implementation& run = *implementation_;
  if (!run.state) return;
  // Copies of before a generation's first step are still the only ones.
  if (!run.buddies || run.newest.result.committed) run.carried.held.clear();
  if (!run.state->is_torn()) {
    run.carried.held.push_back(
        checkpoint::hold_state(*run.state, run.newest_line()));
  }
  if (!run.buddies) return;
  for (checkpoint::HostStateSnapshot& copy : run.buddies->take()) {
    run.carried.held.push_back(std::move(copy));
  }
}

void TrainingRun::leave_peers() {
  Implementation& run = *implementation_;
  run.faults.interrupt();
  if (run.mesh) run.mesh->disconnect();
  if (run.buddies) run.buddies->disconnect();
  if (run.saver) run.saver->disconnect();
  if (!run.trainer) return;
  run.trainer->set_validation_parts(run.validation_parts);
  run.carried.ladder = {run.assignment.plan, run.trainer->ladder()};
}

bool TrainingRun::can_go_on() const {
  const Implementation& run = *implementation_;
  if (!run.source || run.state->is_torn()) return false;
  // What these do between steps is not done twice.
  return !run.tracer && !(run.config.image_weights && run.is_between_epochs());
}

bool TrainingRun::needs_less() const {
  const Implementation& run = *implementation_;
  return run.needs_less ||
         (run.trainer &&
          run.validation_parts != run.trainer->ladder().validation_parts);
}

int64_t TrainingRun::recorded_epochs() const {
  const Implementation& run = *implementation_;
  return run.state ? run.state->counters.recorded_epochs : 0;
}

void TrainingRun::enter(const control::Assignment& next) {
  Implementation& run = *implementation_;
  HEADROOM_CHECK(can_go_on() && next.rank == run.assignment.rank &&
                     next.resume_steps == run.committed(),
                 "another place in the run, or another state");
  run.assignment = next;
}

int64_t TrainingRun::committed_steps() const {
  const Implementation& run = *implementation_;
  return run.state ? run.committed() : run.carried.newest_step();
}

}  // namespace headroom::run
