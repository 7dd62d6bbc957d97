#include "worker/training_run.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <optional>
#include <set>
#include <utility>

#include "configs/run_config.h"
#include "parallel/base/check.h"
#include "parallel/base/log.h"
#include "parallel/collectives/communicator.h"
#include "proto/plan_json.h"
#include "worker/checkpoint.h"
#include "worker/data/loader.h"
#include "worker/data/sampler.h"
#include "worker/data/synthetic.h"
#include "worker/epoch_meter.h"
#include "worker/replicate.h"
#include "worker/results.h"
#include "worker/run_directory.h"
#include "worker/run_inputs.h"
#include "worker/step_log.h"
#include "worker/trainer.h"
#include "worker/validate.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

// A validation batch needs no memory for backward, but one rank takes it alone.
constexpr int64_t kMaxValidationBatch = 32;

// Faults of a data set that are shown at the start; data_report.txt has all.
constexpr int64_t kFaultsShown = 5;

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

}  // namespace

struct TrainingRun::Implementation {
  Implementation(const Assignment& given, CoordinatorClient& coordinator)
      : assignment(given),
        client(coordinator),
        config(parse_run_config(given.run_config_yaml, "run.yaml")),
        directory(given.run_directory) {}

  // --- before the first step ---
  void prepare(Communicator& communicator);
  void start_or_resume();
  void open_run_directory();
  void report_data();
  std::unique_ptr<BatchSource> make_source() const;

  // --- the run ---
  RunEnd run(Communicator& communicator);
  // One step and what is written about it; its reason if the run ends here.
  std::optional<RunEnd> step(BatchSource& source, Trainer& trainer);
  std::optional<RunEnd> end_epoch(Communicator& communicator);
  ValidationResult validate_average(Communicator& communicator);
  void write_epoch(const EpochRecord& record, bool is_best);
  RunEnd refuse_step(const StepResult& result, const Batch& batch);
  void record_step(const Batch& batch, const StepResult& result,
                   double seconds);
  void checkpoint();
  void write_summary(const std::string& ended);
  RunEnd end(ExitCode exit_code, const std::string& reason);

  bool leads() const { return assignment.rank == 0; }
  int64_t num_steps() const {
    const int64_t all = config.epochs * steps_in_epoch;
    return config.max_steps > 0 ? std::min(all, config.max_steps) : all;
  }
  int64_t images_in_epoch() const {
    return inputs.training ? inputs.training->size()
                           : steps_in_epoch * config.global_batch_size;
  }
  std::string resume_hint() const {
    return "continue with: headroom train --resume " +
           directory.root().string();
  }

  Assignment assignment;
  CoordinatorClient& client;
  RunConfig config;
  RunDirectory directory;
  RunInputs inputs;
  std::unique_ptr<TrainingState> state;
  int64_t steps_in_epoch = 0;
  LossGains gains;
  ScheduleOptions schedule;

  // Written by rank 0.
  std::unique_ptr<StepLog> step_log;
  std::unique_ptr<Results> results;
  RunSummary summary;
  Clock::time_point started = Clock::now();
  double seconds_before = 0;  // of earlier sessions of this run

  StepRecord newest_record;  // on every rank: rank 0 may be lost
  EpochMeter meter;
  ProgressReport progress;
  bool stop_agreed = false;           // by the vote of the newest step
  std::set<std::string> faults_said;  // each file is named once
};

void TrainingRun::Implementation::prepare(Communicator& communicator) {
  inputs = read_inputs(config);
  if (inputs.training) {
    require_same_on_all_ranks(communicator, inputs.training->digest(),
                              "the training images and labels");
  }
  state = std::make_unique<TrainingState>(inputs.table, inputs.num_classes(),
                                          scalar_type_of(config.precision),
                                          config.seed, config.freeze);

  const int64_t batch = config.global_batch_size;
  steps_in_epoch = inputs.training
                       ? steps_per_epoch(inputs.training->size(), batch)
                       : kSyntheticStepsPerEpoch;
  schedule = {config.hyp, config.epochs, steps_in_epoch, batch, config.cos_lr};
  const LoaderOptions sizes = loader_options(config, state->model());
  gains = scale_gains(
      config.hyp, static_cast<int64_t>(state->model().levels().size()),
      inputs.num_classes(), std::max(sizes.image_height, sizes.image_width),
      config.label_smoothing);

  if (leads()) start_or_resume();
  replicate(communicator, *state);  // rank 0's state on every rank
  if (state->counters.committed_steps >= num_steps()) {
    throw Error("resume",
                "this run has committed " +
                    std::to_string(state->counters.committed_steps) +
                    " steps and was asked for " + std::to_string(num_steps()),
                config.max_steps > 0 ? "give a larger --max-steps"
                                     : "give a larger --epochs");
  }
  progress.num_steps = num_steps();
  progress.num_epochs = config.epochs;
  progress.steps_per_epoch = steps_in_epoch;
  progress.image_height = sizes.image_height;
  progress.image_width = sizes.image_width;
}

// Rank 0: fills the state, then makes the run directory, last of all checks.
void TrainingRun::Implementation::start_or_resume() {
  if (!config.resume.empty()) {
    const LoadedCheckpoint loaded =
        load_newest_checkpoint(directory.checkpoints(), *state);
    for (const std::string& fault : loaded.damaged) {
      client.report_event({"checkpoint", state->counters.committed_steps, 0,
                           fault + "; the one before is used", "", true});
    }
    client.report_event({"resume", state->counters.committed_steps, 0,
                         "resumed from " + loaded.folder.string(), "", false});
    summary = read_summary(directory.root() / "summary.json");
    seconds_before = summary.wall_seconds;
  } else {
    if (!config.weights.empty()) {
      const LoadReport report = load_weights(config.weights, state->model(),
                                             {LoadMode::kTransfer, false});
      client.report_event(
          {"weights", 0, 0, to_string(report, config.weights), "", false});
    }
    state->reset_average();
  }
  open_run_directory();
}

void TrainingRun::Implementation::open_run_directory() {
  const int64_t needed =
      (config.keep_checkpoints + 1) * checkpoint_bytes(*state);
  directory.create(config.exist_ok || !config.resume.empty(), needed);
  directory.write_text("run.yaml", to_yaml(config));
  directory.write_text("plan.json", plan_to_json(assignment.plan));
  report_data();
  const int64_t first_step = state->counters.committed_steps;
  step_log =
      std::make_unique<StepLog>(directory.root() / "steps.jsonl", first_step);
  results =
      std::make_unique<Results>(directory.root(), first_step / steps_in_epoch);
}

// What was wrong with the data: the first lines for people, all in a file.
void TrainingRun::Implementation::report_data() {
  std::string text;
  for (const DataReport& report : inputs.reports) {
    for (const std::string& line : report.lines(kMaxDataFaults)) {
      text += line + "\n";
    }
    for (const std::string& line : report.lines(kFaultsShown)) {
      client.report_event({"data", state->counters.committed_steps, -1, line,
                           "", report.num_faults() > 0});
    }
  }
  directory.write_text("data_report.txt", text);
}

std::unique_ptr<BatchSource> TrainingRun::Implementation::make_source() const {
  LoaderOptions options = loader_options(config, state->model());
  options.mode =
      config.rect ? LoaderMode::kTrainRect : LoaderMode::kTrainMosaic;
  options.first_step = state->counters.committed_steps;
  options.global_batch_size = config.global_batch_size;
  options.data_parallel_size = assignment.plan.layout.data_parallel_size;
  options.data_parallel_rank = assignment.rank;
  options.micro_batch_size = assignment.plan.micro_batch_size;
  if (!inputs.training) return std::make_unique<SyntheticInput>(options);
  options.dataset = &*inputs.training;
  return std::make_unique<Loader>(options);
}

std::optional<RunEnd> TrainingRun::Implementation::step(BatchSource& source,
                                                        Trainer& trainer) {
  const Clock::time_point start = Clock::now();
  const Batch batch = source.next();
  const StepResult result = trainer.train_step(batch, client.stop_requested());
  if (!result.committed) return refuse_step(result, batch);
  record_step(batch, result, seconds_since(start));
  stop_agreed = result.verdict.stop_requested;

  const int64_t committed = state->counters.committed_steps;
  const bool epoch_over = committed % steps_in_epoch == 0;
  if (stop_agreed && !epoch_over) {
    checkpoint();
    return end(ExitCode::kInterrupted, "interrupted after step " +
                                           std::to_string(committed) + "; " +
                                           resume_hint());
  }
  if (committed == num_steps() && !epoch_over) {
    checkpoint();
    return end(ExitCode::kDone, "reached --max-steps " +
                                    std::to_string(config.max_steps) + "; " +
                                    resume_hint());
  }
  if (config.checkpoint_every_steps > 0 && !epoch_over &&
      committed % config.checkpoint_every_steps == 0) {
    checkpoint();
  }
  return std::nullopt;
}

RunEnd TrainingRun::Implementation::run(Communicator& communicator) {
  prepare(communicator);
  Trainer trainer({gains, schedule, assignment.plan, config.skip_non_finite},
                  *state, communicator);
  const std::unique_ptr<BatchSource> source = make_source();
  for (;;) {
    const int64_t committed = state->counters.committed_steps;
    const int64_t epoch = committed / steps_in_epoch;
    if (committed % steps_in_epoch == 0) {
      state->start_epoch();
      meter = {};
    }
    while (state->counters.committed_steps < (epoch + 1) * steps_in_epoch) {
      if (auto ended = step(*source, trainer)) return *ended;
    }
    if (auto ended = end_epoch(communicator)) return *ended;
  }
}

// Validation, results, weights and checkpoint of a finished epoch.
std::optional<RunEnd> TrainingRun::Implementation::end_epoch(
    Communicator& communicator) {
  TrainingCounters& counters = state->counters;
  const bool last = counters.committed_steps >= num_steps();
  EpochRecord record;
  record.epoch = (counters.committed_steps - 1) / steps_in_epoch;
  record.step = counters.committed_steps;
  record.box = meter.box();
  record.obj = meter.obj();
  record.cls = meter.cls();
  record.lr =
      settings_at(schedule, counters.committed_steps - 1, record.epoch).lr;
  bool is_best = false;
  if (inputs.validation && (!config.noval || last)) {
    progress.phase = "validate";
    client.set_progress(progress);
    record.validation = validate_average(communicator);
    const double fitness = record.validation->fitness();
    // As in YOLOv5 an equal fitness is saved as the best, but is no progress.
    is_best = fitness >= counters.best_fitness;
    if (fitness > counters.best_fitness) counters.best_epoch = record.epoch;
    counters.best_fitness = std::max(counters.best_fitness, fitness);
  }
  if (leads()) write_epoch(record, is_best);
  if (!config.nosave || last) checkpoint();

  if (last)
    return end(ExitCode::kDone,
               "all " + std::to_string(num_steps()) + " steps done");
  if (stop_agreed) {
    return end(ExitCode::kInterrupted, "interrupted after epoch " +
                                           std::to_string(record.epoch + 1) +
                                           "; " + resume_hint());
  }
  if (config.patience > 0 && counters.best_epoch >= 0 &&
      record.epoch - counters.best_epoch >= config.patience) {
    return end(ExitCode::kDone,
               "no progress in " + std::to_string(config.patience) +
                   " epochs (--patience); the best was epoch " +
                   std::to_string(counters.best_epoch + 1));
  }
  return std::nullopt;
}

ValidationResult TrainingRun::Implementation::validate_average(
    Communicator& communicator) {
  LoaderOptions options = loader_options(config, state->model());
  options.mode = LoaderMode::kValidation;
  options.dataset = &*inputs.validation;
  options.global_batch_size =
      std::min(config.global_batch_size, kMaxValidationBatch);
  options.micro_batch_size = options.global_batch_size;
  options.data_parallel_size = communicator.size();
  options.data_parallel_rank = communicator.rank();
  Loader loader(options);
  return validate(state->average_model(), loader, communicator,
                  {config.confidence_threshold, config.nms_iou_threshold,
                   config.max_detections, gains, inputs.class_names});
}

void TrainingRun::Implementation::write_epoch(const EpochRecord& record,
                                              bool is_best) {
  results->write(record);
  const auto save = [&](const std::string& name) {
    save_weights(directory.weights() / (name + ".safetensors"),
                 state->average_model().state(),
                 weights_metadata(config, inputs, record.epoch));
  };
  save("last");
  if (is_best || !record.validation) save("best");
  if (config.save_period > 0 && (record.epoch + 1) % config.save_period == 0) {
    save("epoch" + std::to_string(record.epoch + 1));
  }
  if (is_best) summary.best_metrics_json = to_json(*record.validation);
  if (record.validation) {
    client.report_event({"validation", record.step, 0,
                         describe(record, config.epochs), to_event_json(record),
                         false});
  }
  write_summary("");
}

// Every rank takes part; rank 0 names the cause.
RunEnd TrainingRun::Implementation::refuse_step(const StepResult& result,
                                                const Batch& batch) {
  const Verdict& verdict = result.verdict;
  std::string reason = "step " + std::to_string(batch.step) + ", rank " +
                       std::to_string(verdict.rank) + ": ";
  reason += verdict.outcome == Outcome::kOutOfMemory
                ? "out of memory; use a smaller --batch or --img"
                : "the loss or the gradient is not finite; lower hyp.lr0, or "
                  "--set skip_non_finite=true";
  client.report_event({verdict.outcome == Outcome::kOutOfMemory
                           ? "out_of_memory"
                           : "non_finite",
                       batch.step, verdict.rank, reason, "", true});
  checkpoint();
  return end(ExitCode::kResource, reason + "; " + resume_hint());
}

void TrainingRun::Implementation::record_step(const Batch& batch,
                                              const StepResult& result,
                                              double seconds) {
  meter.add(result.box, result.obj, result.cls);
  const double rate = static_cast<double>(batch.global_size) / seconds;
  progress.step = state->counters.committed_steps;
  progress.epoch = batch.epoch;
  progress.step_in_epoch = batch.step % steps_in_epoch + 1;
  progress.box = meter.box();
  progress.obj = meter.obj();
  progress.cls = meter.cls();
  progress.images_per_second = rate;
  progress.measured_peak_bytes = result.measured_peak_bytes[assignment.rank];
  progress.phase = "train";
  client.set_progress(progress);
  for (const std::string& fault : batch.faults) {
    if (faults_said.insert(fault).second) {
      client.report_event(
          {"data", batch.step, assignment.rank, fault, "", true});
    }
  }
  newest_record = {batch.step, batch.epoch, assignment.generation, 1,
                   seconds,    rate,        batch.global_samples,  result};
  if (!leads()) return;
  if (!result.verdict.ok()) {
    client.report_event({"non_finite", batch.step, result.verdict.rank,
                         "step " + std::to_string(batch.step) +
                             " is not finite: its update is skipped "
                             "(skip_non_finite)",
                         "", true});
  }
  summary.peak_bytes.resize(result.measured_peak_bytes.size());
  for (size_t rank = 0; rank < summary.peak_bytes.size(); ++rank) {
    summary.peak_bytes[rank] =
        std::max(summary.peak_bytes[rank], result.measured_peak_bytes[rank]);
  }
  step_log->write(newest_record);
  client.commit(batch.step, result.loss, progress);
}

void TrainingRun::Implementation::checkpoint() {
  if (!leads()) return;
  progress.phase = "checkpoint";
  client.set_progress(progress);
  const std::filesystem::path folder =
      save_checkpoint(directory.checkpoints(), *state,
                      plan_to_json(assignment.plan), config.keep_checkpoints);
  client.report_event({"checkpoint", state->counters.committed_steps, 0,
                       "saved " + folder.string(), "", false});
}

void TrainingRun::Implementation::write_summary(const std::string& ended) {
  const int64_t steps = state->counters.committed_steps;
  summary.best_epoch = state->counters.best_epoch;
  summary.steps = steps;
  summary.epochs = steps / steps_in_epoch;
  const int64_t in_epoch = steps % steps_in_epoch * config.global_batch_size;
  summary.images = summary.epochs * images_in_epoch() + in_epoch;
  summary.generations = assignment.generation;
  summary.wall_seconds = seconds_before + seconds_since(started);
  summary.ended = ended;
  directory.write_text("summary.json", to_json(summary) + "\n");
}

RunEnd TrainingRun::Implementation::end(ExitCode exit_code,
                                        const std::string& reason) {
  RunEnd result{static_cast<int>(exit_code), reason, ""};
  if (leads()) {
    write_summary(reason);
    result.result_json = to_json(summary);
  }
  return result;
}

TrainingRun::TrainingRun(const Assignment& assignment,
                         CoordinatorClient& client)
    : implementation_(std::make_unique<Implementation>(assignment, client)) {}

TrainingRun::~TrainingRun() = default;

RunEnd TrainingRun::run(Communicator& communicator) {
  return implementation_->run(communicator);
}

RunEnd TrainingRun::save_committed() {
  Implementation& run = *implementation_;
  if (!run.leads()) {  // rank 0 is lost: this survivor writes in its place
    run.assignment.rank = 0;
    run.summary = read_summary(run.directory.root() / "summary.json");
    StepLog log(run.directory.root() / "steps.jsonl", run.newest_record.step);
    log.write(run.newest_record);
  }
  run.checkpoint();
  return run.end(ExitCode::kResource, "stopped after step " +
                                          std::to_string(committed_steps()) +
                                          "; " + run.resume_hint());
}

int64_t TrainingRun::committed_steps() const {
  const auto& state = implementation_->state;
  return state ? state->counters.committed_steps : 0;
}

}  // namespace headroom
