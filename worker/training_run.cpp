#include "worker/training_run.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <set>
#include <utility>

#include "configs/fault.h"
#include "configs/memory/memory_request.h"
#include "configs/scalar.h"
#include "configs/shell_word.h"
#include "parallel/activations/counting_allocator.h"
#include "parallel/base/check.h"
#include "parallel/base/units.h"
#include "parallel/collectives/communicator.h"
#include "parallel/plan/phase_memory.h"
#include "worker/average_validation.h"
#include "worker/data/loader.h"
#include "worker/data/synthetic.h"
#include "worker/label_watch.h"
#include "worker/parallelize.h"
#include "worker/run_loaders.h"
#include "worker/run_milestones.h"
#include "worker/run_parts.h"
#include "worker/run_pictures.h"
#include "worker/trainer.h"
#include "worker/validate.h"

namespace headroom {

namespace {

std::string lowered_scale_text(const StepResult& result) {
  return "the gradient of the loss times " + exact_text(*result.loss_scale) +
         " is not finite: the update is skipped, the next step takes " +
         exact_text(*result.loss_scale / 2);
}

}  // namespace

struct TrainingRun::Implementation : RunParts {
  Implementation(const Assignment& given, CoordinatorClient& coordinator,
                 FaultInjection& injected, const ComputeDevice& where,
                 CarriedState& from_before)
      : RunParts(given, coordinator, where, from_before), faults(injected) {}

  // --- before the first step ---
  void begin_progress();
  std::unique_ptr<BatchSource> make_source();
  void begin_pictures();

  // --- the run; an end where it ends here ---
  RunOutcome run(Communicator& communicator);
  std::optional<RunOutcome> step(BatchSource& source, Trainer& trainer);
  std::optional<RunOutcome> end_epoch();
  std::optional<RunOutcome> catch_up();
  ValidationResult validate_average(EpochRecord& record);
  PhaseMemory note_memory(const MemoryComparison& comparison);
  RunOutcome refuse_step(const StepResult& result, const Batch& batch);
  RunOutcome leave_as_asked();
  RunOutcome leave_for_memory(const StepResult& result,
                              const std::string& where);
  // Median of the newest steps' milliseconds.
  int64_t note_duration(double seconds) {
    constexpr size_t kRemembered = 21;
    durations.push_back(seconds);
    if (durations.size() > kRemembered) durations.erase(durations.begin());
    std::vector<double> sorted = durations;
    const auto middle =
        sorted.begin() + static_cast<std::ptrdiff_t>(sorted.size() / 2);
    std::nth_element(sorted.begin(), middle, sorted.end());
    return static_cast<int64_t>(*middle * 1000);
  }
  // Written before the run goes on, or ends.
  std::filesystem::path checkpoint();
  // One that is due, beside training.
  void begin_checkpoint();
  void note_checkpoints();
  void note_step(const Batch& batch, const StepResult& result, double seconds);
  RunOutcome end(ExitCode exit_code, const std::string& reason);
  // Not that of a generation alone: pictures are drawn.
  RunOutcome end_run(ExitCode exit_code, const std::string& reason);

  void show_phase(const std::string& phase) {
    progress.phase = phase;
    client.set_progress(progress);
  }
  // Images that could not be read, each the first time it is met.
  void say_once(const std::vector<std::string>& faults) {
    for (const std::string& fault : faults) {
      if (!faults_said.insert(fault).second) continue;
      client.report_event(
          {"data", committed(), assignment.rank, fault, "", true});
    }
  }
  void end_trace() {
    if (assignment.rank == 0) {
      client.report_event(
          {"memory_trace", committed(), 0, tracer->summary(), "", false});
    }
    tracer.reset();
  }
  void report(int64_t step, const StepEvent& event) {
    client.report_event(
        {event.kind, step, assignment.rank, event.reason, event.detail_json,
         event.kind == "out_of_memory" || event.kind == "memory_prediction" ||
             (event.kind == "label_bound" && config.memory_limit > 0)});
  }
  // Around something that --inject may let run out of memory.
  void begin_phase(Fault::Phase phase, int64_t step) {
    faults.begin(phase, step);
  }
  void end_phase(int64_t step) {
    if (const auto fault = faults.end()) {
      report(step, {"fault", describe(*fault)});
    }
  }
  MemoryRetry retry(const std::string& phase) {
    return {phase,
            [this](const StepEvent& event) { report(committed(), event); },
            device};
  }
  // Around a step: what is on its way to other ranks, or to disk.
  void settle() {
    if (buddies) buddies->settle();
    saver->settle();
    note_checkpoints();
  }
  void finish_checkpoints() {
    if (!saver) return;  // a peer was lost before there was any
    saver->finish();
    note_checkpoints();
  }
  std::optional<std::string> reason_to_end() const {
    auto reason =
        headroom::reason_to_end(config, steps_in_epoch, state->counters);
    const bool is_mid_epoch = committed() % steps_in_epoch != 0;
    if (reason && is_mid_epoch) *reason += "; " + resume_hint();
    return reason;
  }
  // Of the newest committed step.
  std::string newest_line() const {
    return newest.result.committed ? to_json_line(newest, images_in_epoch())
                                   : restored_line;
  }
  std::string resume_hint() const {
    return "continue with: headroom train --resume " +
           shell_word(assignment.run_directory);
  }

  FaultInjection& faults;
  std::set<std::string> exceeded;  // phases that needed more than predicted
  bool has_peers = true;           // until one is lost
  RunProgress progress;
  StepRecord newest;                  // on every rank: rank 0 may be lost
  std::vector<double> durations;      // of the newest steps, in seconds
  bool stop_agreed = false;           // by the vote of the newest step
  bool leave_agreed = false;          // likewise
  std::set<std::string> faults_said;  // each is named once
  LabelWatch labels{label_bound(config)};
  std::unique_ptr<RunPictures> pictures;  // of the rank that draws
};

void TrainingRun::Implementation::begin_progress() {
  const LoaderOptions sizes = loader_options(config, state->model());
  progress.phase = "start";
  progress.num_steps = num_steps(config, steps_in_epoch);
  progress.num_epochs = config.epochs;
  progress.steps_per_epoch = steps_in_epoch;
  progress.image_height = sizes.image_height;
  progress.image_width = sizes.image_width;
}

std::unique_ptr<BatchSource> TrainingRun::Implementation::make_source() {
  LoaderOptions options =
      training_options(config, assignment.plan, inputs, state->model(), *mesh);
  options.first_step = committed();
  if (!inputs.training) return std::make_unique<SyntheticInput>(options);
  options.host_memory_limit_bytes = host.training;
  options.hooks.targets_begin = [this](int64_t step) {
    begin_phase(Fault::Phase::kLoader, step);
  };
  options.hooks.targets_end = [this](int64_t step) { end_phase(step); };
  options.hooks.out_of_memory = [this](int64_t step, const std::string& why) {
    report(step,
           out_of_memory_event("loader", why, CountingAllocator::take_refusal(),
                               "the loader waits and tries again"));
  };
  return std::make_unique<Loader>(options);
}

void TrainingRun::Implementation::begin_pictures() {
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

RunOutcome TrainingRun::Implementation::run(Communicator& communicator) {
  const PhaseWatch start_up("start-up", device.memory());
  prepare(communicator);
  if (!buddies) carried.held.clear();  // else with the first copies
  begin_progress();
  Trainer trainer(
      {gains, schedule, assignment.plan, config.skip_non_finite, pass_lists,
       &faults, config.host_memory_limit,
       loader_options(config, state->model()).assign, memory, teacher.get()},
      *state, *mesh);
  note_memory(start_up.compare(estimate_start_up(memory, mesh->here)));
  const std::unique_ptr<BatchSource> source = make_source();
  begin_pictures();
  if (epoch_is_unrecorded()) {  // the run was cut between steps and results
    if (auto ended = end_epoch()) return *ended;
  } else if (assignment.generation > 1) {
    if (auto ended = catch_up()) return *ended;
  }
  for (;;) {
    const int64_t epoch = committed() / steps_in_epoch;
    if (committed() % steps_in_epoch == 0) state->start_epoch();
    while (committed() < (epoch + 1) * steps_in_epoch) {
      if (auto ended = step(*source, trainer)) return *ended;
    }
    if (auto ended = end_epoch()) return *ended;
  }
}

std::optional<RunOutcome> TrainingRun::Implementation::step(BatchSource& source,
                                                            Trainer& trainer) {
  const auto start = std::chrono::steady_clock::now();
  if (tracer) tracer->begin_step();
  const Batch batch = source.next();
  settle();
  if (const auto event = labels.look_at(batch)) report(batch.step, *event);
  const StepResult result = trainer.train_step(
      batch,
      {client.stop_requested(), client.leave_requested(assignment.generation)});
  if (tracer && tracer->end_step(mesh->world)) end_trace();
  for (const StepEvent& event : result.events) report(batch.step, event);
  if (!result.committed) return refuse_step(result, batch);
  if (result.lowered_scale && assignment.rank == 0) {
    report(batch.step, {"loss_scale", lowered_scale_text(result)});
  }
  note_step(
      batch, result,
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count());

  if (committed() % steps_in_epoch == 0) return std::nullopt;  // end_epoch
  if (const auto reason = reason_to_end()) {
    checkpoint();
    return end_run(ExitCode::kDone, *reason);
  }
  if (stop_agreed) {
    checkpoint();
    return end_run(ExitCode::kInterrupted, "interrupted after step " +
                                               std::to_string(committed()) +
                                               "; " + resume_hint());
  }
  if (config.checkpoint_every_steps > 0 &&
      committed() % config.checkpoint_every_steps == 0) {
    begin_checkpoint();
  }
  if (leave_agreed) return leave_as_asked();
  return std::nullopt;
}

std::filesystem::path TrainingRun::Implementation::checkpoint() {
  finish_checkpoints();
  show_phase("checkpoint");
  begin_phase(Fault::Phase::kCheckpoint, committed());
  const PhaseWatch watch("checkpoint", device.memory());
  const std::filesystem::path folder = recorder->save_checkpoint();
  end_phase(committed());
  checkpoint_steps = committed();
  note_memory(watch.compare(estimate_checkpoint(memory, mesh->here)));
  return folder;
}

void TrainingRun::Implementation::begin_checkpoint() {
  show_phase("checkpoint");
  begin_phase(Fault::Phase::kCheckpoint, committed());
  const PhaseWatch watch("checkpoint", device.memory());
  const CheckpointSaver::Answer answer = saver->begin(
      buddies ? buddies->newest() : at::Tensor(), retry("checkpoint"));
  end_phase(committed());
  note_checkpoints();
  if (answer == CheckpointSaver::Answer::kSkipped) {
    recorder->record_skipped_checkpoint();
    return;
  }
  if (answer == CheckpointSaver::Answer::kNoRoom) {
    try {
      recorder->save_checkpoint();
      checkpoint_steps = committed();
    } catch (const Error& error) {  // of rank 0; all have done their part
      if (error.exit_code() != ExitCode::kResource) throw;
      recorder->record_checkpoint({committed(), {}, 0, error.what()});
    }
  }
  note_memory(watch.compare(estimate_checkpoint(memory, mesh->here)));
}

void TrainingRun::Implementation::note_checkpoints() {
  for (const CheckpointOutcome& outcome : saver->take_outcomes()) {
    recorder->record_checkpoint(outcome);
    if (outcome.failure.empty()) checkpoint_steps = outcome.step;
  }
}

// Others come, or some of these go.
RunOutcome TrainingRun::Implementation::leave_as_asked() {
  finish_checkpoints();
  LeftGeneration left;
  left.was_asked = true;
  left.committed_steps = committed();
  left.holds_a_part = !state->is_whole();
  left.checkpoint_steps = checkpoint_steps;
  RunOutcome outcome = end(ExitCode::kDone, "other workers take part");
  left.result_json = outcome.result_json;
  outcome.left = std::move(left);
  return outcome;
}

void TrainingRun::Implementation::note_step(const Batch& batch,
                                            const StepResult& result,
                                            double seconds) {
  EpochMeter& meter = state->counters.meter;
  if (result.verdict.ok()) meter.add(result.box, result.obj, result.cls);
  newest = {batch.step,
            batch.epoch,
            assignment.generation,
            result.attempt,
            seconds,
            static_cast<double>(batch.global_size) / seconds,
            batch.global_samples,
            result};
  if (config.multi_scale) {
    progress.image_height = newest.image_height = batch.image_height;
    progress.image_width = newest.image_width = batch.image_width;
  }
  recorder->record_step(newest);
  stop_agreed = result.verdict.stop_requested;
  leave_agreed = result.verdict.leave_requested;

  progress.step = committed();
  progress.epoch = batch.epoch;
  progress.step_in_epoch = batch.step % steps_in_epoch + 1;
  progress.box = meter.box;
  progress.obj = meter.obj;
  progress.cls = meter.cls;
  progress.images_per_second = newest.images_per_second;
  progress.measured_peak_bytes = result.measured_peak_bytes[assignment.rank];
  progress.median_step_ms = note_duration(seconds);
  progress.predicted_peak_bytes = result.predicted_peak_bytes[assignment.rank];
  show_phase("train");
  say_once(batch.faults);
  if (assignment.rank == 0) client.commit(committed(), result.loss, progress);
  if (!buddies) return;
  buddies->after_commit(*state, newest_line());
  carried.held.clear();
}

// Every rank comes here together; the state is that before the step.
RunOutcome TrainingRun::Implementation::refuse_step(const StepResult& result,
                                                    const Batch& batch) {
  const Verdict& verdict = result.verdict;
  const std::string where = "step " + std::to_string(batch.step) + ", rank " +
                            std::to_string(verdict.rank) + ": ";
  if (verdict.outcome == Outcome::kMemoryExhausted) {
    return leave_for_memory(result, where);
  }
  const std::string reason = where +
                             "the loss or the gradient is not finite; lower "
                             "hyp.lr0, or --set skip_non_finite=true";
  if (assignment.rank == 0) {
    client.report_event(
        {"non_finite", batch.step, verdict.rank, reason, "", true});
  }
  checkpoint();
  return end_run(ExitCode::kResource, reason + "; " + resume_hint());
}

// The last rung of the ladder: another plan, which the coordinator chooses.
RunOutcome TrainingRun::Implementation::leave_for_memory(
    const StepResult& result, const std::string& where) {
  LeftGeneration left;
  left.checkpoint = checkpoint();
  left.committed_steps = committed();
  left.failed_rank = result.verdict.rank;
  left.asked_bytes = result.shortfall.asked_bytes;
  left.free_bytes = result.shortfall.free_bytes;
  left.limit_bytes = result.shortfall.limit_bytes;
  RunOutcome outcome =
      end(ExitCode::kResource,
          where + "out of memory with the leanest activations");
  left.result_json = outcome.result_json;
  outcome.left = std::move(left);
  return outcome;
}

// Validation, results, weights and checkpoint of a finished epoch.
std::optional<RunOutcome> TrainingRun::Implementation::end_epoch() {
  TrainingCounters& counters = state->counters;
  const bool last = committed() >= num_steps(config, steps_in_epoch);
  EpochRecord record;
  record.epoch = committed() / steps_in_epoch - 1;
  record.step = committed();
  record.box = counters.meter.box;
  record.obj = counters.meter.obj;
  record.cls = counters.meter.cls;
  record.lr = settings_at(schedule, committed() - 1, record.epoch).lr;
  bool is_best = false;
  if (inputs.validation && (!config.noval || last)) {
    show_phase("validate");
    begin_phase(Fault::Phase::kValidation, committed());
    record.validation = validate_average(record);
    end_phase(committed());
    const double fitness = record.validation->fitness();
    // As in YOLOv5 an equal fitness is saved as the best, but is no progress.
    is_best = fitness >= counters.best_fitness;
    if (fitness > counters.best_fitness) counters.best_epoch = record.epoch;
    counters.best_fitness = std::max(counters.best_fitness, fitness);
  }
  if (assignment.rank == 0 && record.validation) {
    say_once(record.validation->faults);
  }
  recorder->record_epoch(record, is_best, last);
  if (pictures && record.validation) {
    pictures->note(*record.validation,
                   "epoch " + std::to_string(record.epoch + 1), is_best);
  }
  counters.recorded_epochs = record.epoch + 1;
  const auto reason = reason_to_end();
  if (reason || stop_agreed) {
    checkpoint();
  } else if (!config.nosave) {
    finish_checkpoints();  // an epoch's own is not skipped
    begin_checkpoint();
  }

  if (reason) return end_run(ExitCode::kDone, *reason);
  if (stop_agreed) {
    return end_run(ExitCode::kInterrupted,
                   "interrupted after epoch " +
                       std::to_string(record.epoch + 1) + "; " + resume_hint());
  }
  if (leave_agreed) return leave_as_asked();
  return std::nullopt;
}

// What was to follow the newest step, and was cut off with the generation
// before this one: the run's end, a checkpoint.
std::optional<RunOutcome> TrainingRun::Implementation::catch_up() {
  if (const auto reason = reason_to_end()) {
    if (checkpoint_steps < committed()) checkpoint();
    const bool is_epoch_end = committed() % steps_in_epoch == 0;
    if (pictures && inputs.validation && is_epoch_end) {
      pictures->say_what_is_lost();
    }
    return end_run(ExitCode::kDone, *reason);
  }
  if (checkpoint_steps <
      newest_due_checkpoint(config, steps_in_epoch, committed())) {
    begin_checkpoint();
  }
  return std::nullopt;
}

ValidationResult TrainingRun::Implementation::validate_average(
    EpochRecord& record) {
  const ValidatedAverage validated = headroom::validate_average(
      {config, memory, *inputs.validation, inputs.class_names, gains,
       pass_lists, *state, *mesh, retry("validation"), host.validation});
  record.validation_memory = note_memory(validated.memory).ranks;
  return validated.result;
}

// Of all ranks, where there are any; each phase that needed too much is named
// once.
PhaseMemory TrainingRun::Implementation::note_memory(
    const MemoryComparison& comparison) {
  if (comparison.is_more() && exceeded.insert(comparison.phase).second) {
    report(committed(), memory_prediction_event(comparison));
  }
  if (!has_peers) return {};
  const PhaseMemory all = gather_memory(mesh->world, comparison);
  recorder->record_memory(all);
  return all;
}

RunOutcome TrainingRun::Implementation::end(ExitCode exit_code,
                                            const std::string& reason) {
  finish_checkpoints();
  return {static_cast<int>(exit_code), reason, recorder->record_end(reason)};
}

RunOutcome TrainingRun::Implementation::end_run(ExitCode exit_code,
                                                const std::string& reason) {
  RunOutcome outcome = end(exit_code, reason);
  faults.strike(Fault::Phase::kEnd, committed());
  if (pictures) {
    show_phase("pictures");
    pictures->finish();
  }
  return outcome;
}

TrainingRun::TrainingRun(const Assignment& assignment,
                         CoordinatorClient& client, FaultInjection& faults,
                         const ComputeDevice& device, CarriedState& carried)
    : implementation_(std::make_unique<Implementation>(
          assignment, client, faults, device, carried)) {}

TrainingRun::~TrainingRun() = default;

RunOutcome TrainingRun::run(Communicator& communicator) {
  return implementation_->run(communicator);
}

RunOutcome TrainingRun::save_committed() {
  Implementation& run = *implementation_;
  HEADROOM_CHECK(holds_whole_state(), "a part of a state is no state");
  run.recorder->set_mesh(nullptr);
  run.has_peers = false;
  run.recorder->take_over(run.newest);
  run.checkpoint();
  return run.end(ExitCode::kResource, "stopped after step " +
                                          std::to_string(committed_steps()) +
                                          "; " + run.resume_hint());
}

int64_t TrainingRun::checkpoint_steps() const {
  return implementation_->checkpoint_steps;
}

bool TrainingRun::holds_whole_state() const {
  const auto& state = implementation_->state;
  return state && implementation_->has_state && state->is_whole();
}

void TrainingRun::hold_committed() {
  Implementation& run = *implementation_;
  if (!run.has_state) return;
  // Copies of before a generation's first step are still the only ones.
  if (!run.buddies || run.newest.result.committed) run.carried.held.clear();
  if (!run.state->is_torn()) {
    run.carried.held.push_back(hold_state(*run.state, run.newest_line()));
  }
  if (!run.buddies) return;
  for (HeldState& copy : run.buddies->take()) {
    run.carried.held.push_back(std::move(copy));
  }
}

void TrainingRun::leave_peers() {
  if (implementation_->mesh) implementation_->mesh->disconnect();
  if (implementation_->buddies) implementation_->buddies->disconnect();
  if (implementation_->saver) implementation_->saver->disconnect();
}

int64_t TrainingRun::committed_steps() const {
  const Implementation& run = *implementation_;
  return run.has_state ? run.committed() : run.carried.newest_step();
}

}  // namespace headroom
