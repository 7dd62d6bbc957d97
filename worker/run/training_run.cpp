#include "worker/run/training_run.h"

#include <c10/util/Exception.h>

#include <chrono>
#include <optional>
#include <utility>

#include "configs/layers/detect_branches.h"
#include "configs/loader_memory.h"
#include "configs/yaml/scalar.h"
#include "parallel/base/check.h"
#include "parallel/base/folder_place.h"
#include "parallel/base/log.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/collectives/communicator.h"
#include "parallel/collectives/gather.h"
#include "parallel/collectives/mesh.h"
#include "parallel/machine/machine_limits.h"
#include "parallel/plan/plan_json.h"
#include "parallel/predict/memory_request.h"
#include "parallel/predict/phase_memory.h"
#include "worker/checkpoint/checkpoint_saver.h"
#include "worker/checkpoint/peer_replicas.h"
#include "worker/control/agent_loss.h"
#include "worker/data/loader/loader.h"
#include "worker/memory/box_bound_monitor.h"
#include "worker/memory/memory_trace.h"
#include "worker/run/card_fault.h"
#include "worker/run/epoch_end.h"
#include "worker/run/float16_check.h"
#include "worker/run/run_checkpoints.h"
#include "worker/run/run_context.h"
#include "worker/run/run_device.h"
#include "worker/run/run_directory.h"
#include "worker/run/run_pictures.h"
#include "worker/run/run_recorder.h"
#include "worker/run/run_reports.h"
#include "worker/run/training_source.h"
#include "worker/step/apply_plan.h"
#include "worker/step/stragglers.h"
#include "worker/step/teacher.h"
#include "worker/step/trainer.h"
#include "worker/step/weight_check.h"
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

// What an epoch's order of the samples depends on besides the seed; "" if
// nothing.
std::string order_name(const configs::RunConfig& config) {
  if (config.rect) return "--rect";
  if (config.image_weights) return "--image-weights";
  return config.synthetic_input ? "--synthetic-input" : "";
}

}  // namespace

struct TrainingRun::Implementation {
  Implementation(const control::Assignment& assignment,
                 control::CoordinatorClient& client,
                 CrossGenerationState& what_is_carried)
      : context(assignment, client, what_is_carried),
        carried(what_is_carried),
        start(announced_point(assignment)) {}

  RunOutcome run(collectives::Communicator& communicator);
  // Checks the devices before the run computes in float16, if the run asks for
  // it. Returns an outcome if the run must use float32. Collective.
  std::optional<RunOutcome> try_float16(collectives::Communicator& world);
  // Checks everything that may refuse the run; the run directory comes last.
  void prepare(collectives::Communicator& communicator);
  // Gives the mesh's new connections to all its users. Collective.
  void reconnect();
  // Connects before the first commit, because a commit that fails to connect
  // cannot be undone.
  void connect_shards() {
    if (state->is_sharded()) mesh->data->connect();
  }
  void make_trainer();
  RunOutcome train();
  std::optional<RunOutcome> step();
  // Makes `batch` that of the next step. Returns an outcome if, in a run with
  // --augment-program, any rank could not make its samples: the program failed
  // or an image is damaged. Collective with such a program.
  std::optional<RunOutcome> load_batch();
  std::optional<RunOutcome> end_epoch();
  RunOutcome end_in_time();
  std::optional<RunOutcome> catch_up();

  // The parts of prepare().
  void restore_state();
  void share_host_memory();
  void share_images(int64_t cache_bytes);
  void require_steps_left() const;
  void keep_copies();
  void begin_pictures();
  void begin_reports();

  void note_step(const loader::Batch& batch, const step::StepResult& result,
                 double seconds);

  // Only rank 0 reports.
  void report(EventKind kind, const std::string& reason) {
    context.report(kind, committed(), reason);
  }

  int64_t committed() const { return state->counters.committed_steps; }
  bool is_between_epochs() const {
    return run::is_between_epochs(committed(), context.steps_in_epoch);
  }
  bool epoch_is_unrecorded() const {
    return is_between_epochs() && committed() / context.steps_in_epoch >
                                      state->counters.recorded_epochs;
  }
  // The newest committed step's line in steps.jsonl.
  std::string newest_line() const {
    return newest.result.committed ? to_json_line(newest) : start.newest_line;
  }

  void compare_weights() const {
    if (context.config.weight_digest_every == 0) return;
    step::require_equal_weights(*state, *mesh);
  }
  // Whether the state is saved, or given to other ranks, after this step.
  bool is_state_used(const data_parallel::Verdict& verdict) const;
  void note_speed(const step::StepResult& result);

  RunContext context;
  CrossGenerationState& carried;
  StartingPoint start;

  // Made by prepare(), in this order. If a peer is lost, the later objects may
  // be missing.
  std::optional<DeviceBudget> budget;
  std::unique_ptr<collectives::Mesh> mesh;
  std::unique_ptr<step::Teacher> teacher;      // may be null
  std::unique_ptr<step::TrainingState> state;  // null until it is restored
  loss::LossGains gains;
  std::unique_ptr<RunRecorder> recorder;
  std::unique_ptr<memory::MemoryTracer> tracer;  // set while steps are recorded
  predict::HostShares host;  // host memory of the loaders and of state copies
  std::unique_ptr<checkpoint::PeerReplicas> buddies;  // null if not sharded
  std::unique_ptr<checkpoint::CheckpointSaver> saver;
  int64_t validation_parts = 0;
  std::unique_ptr<RunPictures> pictures;  // null if this rank draws no pictures
  std::unique_ptr<RunReports> reports;
  std::unique_ptr<RunCheckpoints> checkpoints;
  std::unique_ptr<EpochEnd> epoch_end;
  std::unique_ptr<RunEnd> ending;
  std::unique_ptr<step::Trainer> trainer;
  std::optional<TrainingSource> source;  // made after all members above
  // The batch of a step that may be repeated, and whether the images of the
  // current epoch have been drawn already.
  std::optional<loader::Batch> batch;
  bool epoch_is_open = false;
  bool needs_less = false;  // TrainingRun::needs_less() after a failed step
  bool is_distrusted = false;
  step::Stragglers stragglers{context.assignment.plan.layout, context.rank};

  StepRecord newest;     // kept on every rank, because rank 0 may be lost
  EpochWork epoch_work;  // work in the current epoch
  memory::BoxBoundMonitor labels{predict::label_bound(context.config)};
};

RunOutcome TrainingRun::Implementation::run(
    collectives::Communicator& communicator) {
  needs_less = false;
  if (source) {
    reconnect();
  } else {
    if (auto refused = try_float16(communicator)) return *refused;
    const memory::PhaseWatch start_up("start-up", context.device.memory());
    prepare(communicator);
    connect_shards();
    // With buddies, the first new copies replace the held states.
    if (!buddies) carried.held.clear();
    reports->note_device();
    make_trainer();
    reports->note_memory(start_up.compare(
        predict::estimate_start_up(context.memory, mesh->here)));
    source.emplace(context, *state, host.training, carried.images, *reports);
  }
  if (const auto exhausted = trainer->begin_generation()) {
    compare_weights();
    return ending->leave_for_memory(*exhausted, trainer->shortfall());
  }
  validation_parts = trainer->ladder().validation_parts;
  return train();
}

std::optional<RunOutcome> TrainingRun::Implementation::try_float16(
    collectives::Communicator& world) {
  if (!is_float16_check_due(context)) return std::nullopt;
  const DeviceMemorySample before(context.device);
  const Float16Check check = check_float16(context, world);
  // The first step finds these libraries loaded.
  carried.footprint.libraries += before.taken_since().value_or(0);
  if (check.error.empty()) {
    if (context.rank == 0) {
      context.report(EventKind::kDevices, 0,
                     "precision: fp16 has passed its check: " + check.summary);
    }
    return std::nullopt;
  }
  control::LeftGeneration left;
  left.was_asked = true;
  left.float16_error = check.error;
  return RunOutcome{.exit_code = static_cast<int>(ExitCode::kResource),
                    .reason = check.error,
                    .result_json = "",
                    .left = std::move(left)};
}

void TrainingRun::Implementation::reconnect() {
  mesh->reconnect();
  connect_shards();
  saver->reconnect();
  if (buddies) buddies->reconnect(mesh->world);
}

void TrainingRun::Implementation::make_trainer() {
  trainer = std::make_unique<step::Trainer>(
      step::Trainer::Options{
          .gains = gains,
          .place_gains = validation::place_gains(context.config.hyp),
          .schedule = context.schedule,
          .plan = context.assignment.plan,
          .skip_non_finite = context.config.skip_non_finite,
          .faults = &context.faults,
          .host_memory_limit = context.config.host_memory_limit,
          .may_offload = !context.config.memory_limit_is_machines,
          .assign = step::loader_options(context.config, state->model()).assign,
          .memory = context.memory,
          .teacher = teacher.get(),
          .following = [this] { return source->batches().made_ahead(); },
          .captures_micro_batches = context.config.cuda_graphs,
          .labels = context.memory.labels,
          .ladder = carried.ladder_of(context.assignment.plan),
          .weight_digest_every = context.config.weight_digest_every},
      *state, *mesh);
}

RunOutcome TrainingRun::Implementation::train() {
  // What the former generation left may be saved before the first step.
  if (context.assignment.generation > 1) compare_weights();
  if (epoch_is_unrecorded()) {  // results are not written yet
    if (auto ended = end_epoch()) return *ended;
  } else if (context.assignment.generation > 1) {
    if (auto ended = catch_up()) return *ended;
  }
  // With several agents, workers of other agents also hold the state.
  const agent_loss::Reprieve reprieve(context.assignment.has_one_agent);
  for (;;) {
    if (is_between_epochs()) {
      if (buddies) buddies->settle();  // the state may be copied until here
      state->start_epoch(context.config.carry_accumulation);
    }
    if (!epoch_is_open) source->begin_epoch();
    epoch_is_open = true;
    do {
      if (auto ended = step()) return *ended;
    } while (!is_between_epochs());
    epoch_is_open = false;
    if (auto ended = end_epoch()) return *ended;
  }
}

void TrainingRun::Implementation::prepare(
    collectives::Communicator& communicator) {
  budget.emplace(context, carried.footprint);
  // With another limit the workers of a machine share other images. All of them
  // let go of the old ones here, before the first collective operation.
  if (carried.images_limit != context.config.host_memory_limit) {
    carried.images.reset();
  }
  if (context.data.training) {
    step::require_same_on_all_ranks(communicator,
                                    context.data.training->digest(),
                                    "the training images and labels");
  }
  mesh = std::make_unique<collectives::Mesh>(communicator,
                                             context.assignment.plan.layout);
  restore_state();
  // Trace only the first generation: a later generation would overwrite the
  // trace.
  if (!context.config.memory_trace.empty() &&
      context.assignment.generation == 1) {
    tracer = std::make_unique<memory::MemoryTracer>(
        context.config.memory_trace, context.config.memory_trace_steps,
        context.rank, context.device.memory());
  }
  share_host_memory();
  if (context.rank == 0) {
    require_steps_left();
    recorder->open(start.newest_line);
  }
  keep_copies();
  context.memory.fetches_ahead = mesh->data->gathers_in_background();
  begin_pictures();
  begin_reports();
}

// Makes the generation's starting state. `state` stays null until the committed
// state has been restored, so that a state that is not restored is never saved.
void TrainingRun::Implementation::restore_state() {
  if (!context.config.teacher.empty())
    teacher = step::Teacher::open(context.config, context.device);
  std::unique_ptr<step::TrainingState> fresh = fresh_state(context, *mesh);
  if (teacher) teacher->check(fresh->model());
  gains = validation::loss_gains(
      context.config, fresh->model(),
      step::loader_options(context.config, fresh->model()),
      context.data.class_weights);
  recorder = std::make_unique<RunRecorder>(context, *fresh);
  start = restore(context, carried.held, *fresh);
  context.memory.resumes = start.is_from_checkpoint;
  state = std::move(fresh);
  if (context.data.training) note_data(context, state->counters);
}

// Begins copies of the state, on disk and, if no rank has the whole state, in
// other ranks' memory.
void TrainingRun::Implementation::keep_copies() {
  buddies = begin_copies(context, *state);
  saver = std::make_unique<checkpoint::CheckpointSaver>(
      checkpoint::CheckpointSaver::Options{
          .checkpoints =
              RunDirectory(context.assignment.run_directory).checkpoints(),
          .plan_json = plan::plan_to_json(context.assignment.plan),
          .keep = context.config.keep_checkpoints,
          .may_copy = host.copies_state},
      *state, *mesh);
  const RunDirectory directory(context.assignment.run_directory);
  if (context.rank == 0) {
    checkpoint::remove_orphaned_parts(directory.checkpoints());
  }
  carried.orphan = {.checkpoints = directory.checkpoints(),
                    .plan_json = plan::plan_to_json(context.assignment.plan),
                    .keep = context.config.keep_checkpoints,
                    .blocks = saver->blocks(),
                    .rank = context.rank};
  carried.definition = run_definition(context, context.network);
  // Then rank 0 has marked the run's folder, in an earlier generation.
  const FolderPlace& place = context.assignment.folder;
  if (place.is_known()) carried.run_id = place.run_id;
}

void TrainingRun::Implementation::begin_pictures() {
  if (context.rank != 0 || context.config.noplots || !host.draws_pictures)
    return;
  RunPictures::Subject subject;
  subject.folder = context.assignment.run_directory;
  subject.training =
      validation::training_options(context.config, context.assignment.plan,
                                   context.data, state->model(), *mesh);
  if (context.data.validation) {
    subject.validation = validation::validation_options(
        context.config, context.assignment.plan, *context.data.validation,
        state->model(), *mesh);
  }
  subject.say = [this](const std::string& line) {
    context.report(EventKind::kPicture, 0, line, /*warning=*/true);
  };
  pictures = std::make_unique<RunPictures>(std::move(subject));
}

void TrainingRun::Implementation::begin_reports() {
  reports = std::make_unique<RunReports>(context, *state, *recorder, *budget);
  checkpoints = std::make_unique<RunCheckpoints>(
      context, *state, *saver, buddies.get(), *recorder, *reports,
      start.checkpoint_steps);
  epoch_end = std::make_unique<EpochEnd>(context, *state, gains,
                                         host.validation, validation_parts,
                                         *recorder, *reports, pictures.get());
  ending =
      std::make_unique<RunEnd>(context, *state, buddies.get(), pictures.get(),
                               *recorder, *reports, *checkpoints);
}

void TrainingRun::Implementation::share_host_memory() {
  if (!context.data.training) return;
  predict::HostMemory needed = validation::host_memory_of(
      context.config, context.assignment.plan, context.data, state->model(),
      *mesh, context.layers);
  host = predict::host_shares(context.config.host_memory_limit, needed);
  if (!host.copies_state) needed.state_copy = 0;
  if (!host.draws_pictures) needed.pictures = 0;
  share_images(needed.training.cache_bytes);
  if (context.rank != 0) return;
  std::string text = validation::describe(needed);
  if (carried.images != nullptr) {
    text += cat("; the ", carried.shared.num_workers,
                " workers of a machine share the images that they remember, ",
                format_bytes(carried.images->room_bytes()));
  }
  report(EventKind::kHostMemory, text);
  if (context.device.is_cpu()) return;
  const configs::AugmentPlace place = configs::augment_place(context.config);
  report(EventKind::kAugmentOn,
         std::string("samples are rendered ") +
             (place.on_device ? "on the device" : "by the loader's threads") +
             ": " + place.reason);
}

// Opens the cache of images that this worker shares with others, if its agent
// has made one. `cache_bytes`: this worker's share of it.
void TrainingRun::Implementation::share_images(int64_t cache_bytes) {
  const SharedFiles& shared = carried.shared;
  if (shared.images < 0 || carried.images != nullptr) return;
  const loader::SharedImages::Content content = loader::shared_content(
      validation::training_options(context.config, context.assignment.plan,
                                   context.data, state->model(), *mesh));
  std::string problem;
  carried.images_limit = context.config.host_memory_limit;
  carried.images = loader::SharedImages::open(
      shared.images, content,
      configs::shared_cache_bytes(cache_bytes, shared.num_workers,
                                  read_machine_limits().free_bytes),
      problem);
  if (carried.images == nullptr) {
    log::warn("this worker remembers " + format_bytes(cache_bytes) +
              " of images for itself: " + problem);
  }
}

// Throws Error if a resumed run has no steps left. Only the first generation
// checks this.
void TrainingRun::Implementation::require_steps_left() const {
  const int64_t asked = context.num_steps;
  if (context.assignment.generation > 1 || epoch_is_unrecorded()) return;
  if (committed() < asked) return;
  throw Error("resume",
              cat("this run has committed ", counted(committed(), "step"),
                  " and was asked for ", asked),
              context.config.max_steps > 0 ? "give a larger --max-steps"
                                           : "give a larger --epochs");
}

std::optional<RunOutcome> TrainingRun::Implementation::load_batch() {
  const bool has_program = !context.config.augment_program.empty();
  std::string fault;
  if (!batch) {
    try {
      batch = source->batches().next();
      if (const auto event = labels.look_at(*batch)) {
        reports->report(batch->step, *event);
      }
    } catch (const Error& error) {
      const bool is_of_samples = error.exit_code() == ExitCode::kData;
      if (!has_program || !is_of_samples || committed() == 0) throw;
      fault = error.what();
    }
  }
  // The ranks agree before every step, also if they have the batch already: a
  // step may be tried again after a loss.
  if (has_program && !collectives::all_agree(mesh->world, fault.empty())) {
    for (std::string& text : collectives::gather_bytes(mesh->world, fault)) {
      if (!text.empty()) return ending->refuse_samples(text);
    }
  }
  return std::nullopt;
}

std::optional<RunOutcome> TrainingRun::Implementation::step() {
  const auto start = std::chrono::steady_clock::now();
  if (tracer) tracer->begin_step();
  if (auto ended = load_batch()) return ended;
  const loader::Batch& batch = *this->batch;
  checkpoints->settle();
  const step::StepResult result = trainer->train_step(batch, [&] {
    recorder->settle_lines();  // the line of the step before
    if (buddies) buddies->settle();
    return step::Trainer::Requests{
        .stop = context.client.stop_requested(),
        .leave = context.client.leave_requested(context.assignment.generation),
        .save = agent_loss::has_happened(),
        .checkpoint = context.rank == 0 &&
                      is_checkpoint_due(context.config, checkpoints->age()),
        .time_is_over =
            context.rank == 0 &&
            is_time_over(context.config, std::chrono::system_clock::now())};
  });
  if (tracer && tracer->end_step(mesh->world)) {
    if (context.rank == 0) report(EventKind::kMemoryTrace, tracer->summary());
    tracer.reset();
  }
  for (const memory::StepEvent& event : result.events) {
    reports->report(batch.step, event);
  }
  if (!result.weights.are_equal()) {
    throw step::WeightsDiffer(result.weights, context.rank, batch.step);
  }
  if (!result.out_of_memory.empty()) {
    if (mesh->world.size() == 1) {
      return ending->leave_for_memory(/*failed_rank=*/0, trainer->shortfall());
    }
    needs_less = !trainer->ladder().is_exhausted;
    C10_THROW_ERROR(OutOfMemoryError, result.out_of_memory);
  }
  if (!result.committed) {
    compare_weights();  // a wrong rank may be the cause
    return ending->refuse_step(result, batch);
  }
  if (result.lowered_scale && context.rank == 0) {
    reports->report(batch.step,
                    {EventKind::kLossScale, lowered_scale_text(result)});
  }
  const auto taken = std::chrono::steady_clock::now() - start;
  // The step is done: if anything fails from here on, the step is not repeated.
  const loader::Batch done = *std::exchange(this->batch, std::nullopt);
  note_step(done, result, std::chrono::duration<double>(taken).count());
  // Rank 0 took part in the step, so the run's folder has its mark by now.
  if (carried.run_id.empty()) {
    carried.run_id = context.assignment.folder.run_id;
  }
  reports->note_first_step();
  if (buddies) {
    buddies->after_commit();
    carried.held.clear();
  }

  if (is_state_used(result.verdict)) compare_weights();
  if (result.verdict.save_requested) return ending->save_for_successors();
  if (is_between_epochs()) return std::nullopt;  // end_epoch() decides
  if (const auto reason = ending->reason()) return ending->complete(*reason);
  if (result.verdict.stop_requested) {
    return ending->interrupt(cat("step ", committed()));
  }
  if (result.verdict.time_is_over) return end_in_time();
  if (result.verdict.checkpoint_due ||
      is_checkpoint_scheduled(context.config, committed())) {
    trainer->release_graphs();
    checkpoints->begin();
  }
  if (result.verdict.leave_requested) return ending->leave_as_asked();
  return std::nullopt;
}

bool TrainingRun::Implementation::is_state_used(
    const data_parallel::Verdict& verdict) const {
  return verdict.save_requested || verdict.stop_requested ||
         verdict.time_is_over || verdict.checkpoint_due ||
         verdict.leave_requested || is_between_epochs() ||
         ending->reason().has_value() ||
         is_checkpoint_scheduled(context.config, committed());
}

void TrainingRun::Implementation::note_speed(const step::StepResult& result) {
  if (result.seconds_per_image.empty()) return;
  const auto news = stragglers.note(result.seconds_per_image);
  if (!news) return;
  const devices::ComputeDevice& device = context.device;
  const std::string card =
      device.is_cpu() ? ""
                      : ", " + to_string(card_of(device.api()->describe(
                                   device.device().index())));
  context.client.report_event(
      {.event = EventKind::kSlowRank,
       .step = committed(),
       .rank = context.rank,
       .reason = cat("rank ", context.rank, " on ", this_host_name(), card, " ",
                     news->reason),
       .warning = news->is_slow});
}

void TrainingRun::Implementation::note_step(const loader::Batch& batch,
                                            const step::StepResult& result,
                                            double seconds) {
  if (result.verdict.ok()) {
    state->counters.meter.add(result.terms);
  }
  ++epoch_work.steps;
  epoch_work.images += batch.global_size;
  epoch_work.seconds += seconds;
  newest = {
      .step = batch.step,
      .epoch = batch.epoch,
      .generation = context.assignment.generation,
      .attempt = result.attempt,
      .seconds = seconds,
      .images_per_second = static_cast<double>(batch.global_size) / seconds,
      .positions = batch.positions,
      .order = batch.order,
      .seed = context.config.seed,
      .order_name = order_name(context.config),
      .lists_samples = context.config.global_batch_size <= kMostListedSamples,
      .epoch_samples = context.images_in_epoch,
      .result = result,
      .has_anchors = layers::has_anchors(context.data.table),
      .image_height = context.config.multi_scale ? batch.image_height : 0,
      .image_width = context.config.multi_scale ? batch.image_width : 0};
  recorder->record_step(newest);
  note_speed(result);
  if (pictures) pictures->begin();
  reports->say_once(batch.faults);
  reports->commit(newest);
}

// Records a finished epoch and begins its checkpoint, or ends the run.
std::optional<RunOutcome> TrainingRun::Implementation::end_epoch() {
  const data_parallel::Verdict& agreed = newest.result.verdict;
  const bool is_last = committed() >= context.num_steps || agreed.time_is_over;
  const bool is_due = epoch_end->is_due(is_last);
  const bool is_saved = is_due || agreed.checkpoint_due ||
                        is_checkpoint_scheduled(context.config, committed());
  if (is_saved) trainer->release_graphs();
  epoch_end->record(epoch_work, is_due, is_last);
  epoch_work = {};
  if (const auto reason = ending->reason()) return ending->complete(*reason);
  if (agreed.time_is_over) return ending->complete_in_time();
  if (agreed.stop_requested) {
    return ending->interrupt(cat("epoch ", state->counters.recorded_epochs));
  }
  if (!context.config.nosave && is_saved) {
    checkpoints->finish();  // else begin() would skip this checkpoint
    checkpoints->begin();
  }
  if (is_due) epoch_end->finish();
  if (agreed.leave_requested) return ending->leave_as_asked();
  return std::nullopt;
}

// Validates within an epoch and ends the run.
RunOutcome TrainingRun::Implementation::end_in_time() {
  trainer->release_graphs();
  epoch_end->record(epoch_work, /*is_due=*/true, /*is_last=*/true);
  return ending->complete_in_time();
}

// Does the work that the previous generation did not do after its newest step:
// ends the run, or writes a checkpoint.
std::optional<RunOutcome> TrainingRun::Implementation::catch_up() {
  const int64_t saved = checkpoints->agreed_steps(mesh->world);
  if (const auto reason = ending->reason()) {
    return ending->catch_up(*reason, saved);
  }
  if (saved < newest_due_checkpoint(context.config, context.steps_in_epoch,
                                    committed())) {
    checkpoints->begin();
  }
  return std::nullopt;
}

TrainingRun::TrainingRun(const control::Assignment& assignment,
                         control::CoordinatorClient& client,
                         CrossGenerationState& carried)
    : implementation_(
          std::make_unique<Implementation>(assignment, client, carried)) {}

TrainingRun::~TrainingRun() = default;

RunOutcome TrainingRun::run(collectives::Communicator& communicator) {
  return implementation_->run(communicator);
}

RunOutcome TrainingRun::save_committed(const FolderPlace& place) {
  Implementation& run = *implementation_;
  HEADROOM_CHECK(holds_whole_state(), "a part of a state is no state");
  run.reports->leave_peers();
  run.recorder->take_over(run.newest, place);
  return run.ending->save_alone();
}

int64_t TrainingRun::checkpoint_steps() const {
  const Implementation& run = *implementation_;
  return run.checkpoints ? run.checkpoints->newest_steps()
                         : run.start.checkpoint_steps;
}

bool TrainingRun::holds_whole_state() const {
  return implementation_->ending && implementation_->state->is_whole() &&
         !implementation_->is_distrusted;
}

void TrainingRun::distrust() {
  implementation_->is_distrusted = true;
  implementation_->carried.held.clear();
}

void TrainingRun::hold_committed() {
  Implementation& run = *implementation_;
  if (!run.state || run.is_distrusted) return;
  // Before the first step of a generation, no newer copies have replaced the
  // held ones.
  if (!run.buddies || run.newest.result.committed) run.carried.held.clear();
  if (!run.state->is_torn()) {
    run.carried.held.push_back(
        checkpoint::hold_state(*run.state, run.newest_line()));
  }
  if (!run.buddies) return;
  for (checkpoint::HostStateSnapshot& copy : run.buddies->take()) {
    // Copies are sent without their step's line of steps.jsonl, because each
    // rank can make the newest step's line from its own record. An older step's
    // line is in the file: rank 0 writes it before it votes for the next step.
    if (!run.newest.result.committed ||
        copy.counters.committed_steps == run.newest.step + 1) {
      copy.newest_line = run.newest_line();
    }
    run.carried.held.push_back(std::move(copy));
  }
}

void TrainingRun::leave_peers() {
  Implementation& run = *implementation_;
  run.context.faults.interrupt();
  if (run.mesh) run.mesh->disconnect();
  if (run.buddies) run.buddies->disconnect();
  if (run.saver) run.saver->disconnect();
  if (!run.trainer) return;
  run.trainer->set_validation_parts(run.validation_parts);
  run.carried.ladder = {run.context.assignment.plan, run.trainer->ladder()};
}

bool TrainingRun::can_go_on() const {
  const Implementation& run = *implementation_;
  if (!run.source || run.state->is_torn() || run.is_distrusted) return false;
  // The ranks exchange data after a step for --memory-trace and between epochs
  // for --image-weights. If such an exchange fails, it cannot be repeated,
  // because some ranks may already have finished it.
  return !run.tracer &&
         !(run.context.config.image_weights && run.is_between_epochs());
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
  HEADROOM_CHECK(can_go_on() && next.rank == run.context.assignment.rank &&
                     next.resume_steps == run.committed(),
                 "another place in the run, or another state");
  run.context.assignment = next;
}

int64_t TrainingRun::committed_steps() const {
  const Implementation& run = *implementation_;
  return run.state ? run.committed() : run.carried.newest_step();
}

}  // namespace headroom::run
