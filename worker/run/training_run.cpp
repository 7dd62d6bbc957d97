#include "worker/run/training_run.h"

#include <algorithm>
#include <chrono>
#include <optional>
#include <utility>

#include "configs/fault.h"
#include "configs/yaml/scalar.h"
#include "parallel/activations/counting_allocator.h"
#include "parallel/base/check.h"
#include "parallel/collectives/communicator.h"
#include "parallel/predict/memory_request.h"
#include "worker/data/loader/image_weights.h"
#include "worker/data/loader/loader.h"
#include "worker/data/loader/synthetic.h"
#include "worker/data/sampling/sampler.h"
#include "worker/memory/box_bound_monitor.h"
#include "worker/run/run_checkpoints.h"
#include "worker/run/run_context.h"
#include "worker/run/run_end.h"
#include "worker/run/run_milestones.h"
#include "worker/run/run_reports.h"
#include "worker/step/apply_plan.h"
#include "worker/step/device_prefetcher.h"
#include "worker/step/trainer.h"
#include "worker/validation/average_validation.h"
#include "worker/validation/run_loaders.h"
#include "worker/validation/validate.h"
#include "worker/validation/validation_figures.h"

namespace headroom::run {

namespace {

std::string lowered_scale_text(const step::StepResult& result) {
  return "the gradient of the loss times " +
         yaml::exact_text(*result.loss_scale) +
         " is not finite: the update is skipped, the next step takes " +
         yaml::exact_text(*result.loss_scale / 2);
}

}  // namespace

struct TrainingRun::Implementation : RunContext {
  Implementation(const control::Assignment& given,
                 control::CoordinatorClient& coordinator,
                 step::FaultInjection& injected,
                 const devices::ComputeDevice& where,
                 memory::DeviceFootprint& taken,
                 CrossGenerationState& from_before)
      : RunContext(given, coordinator, where, taken, from_before),
        faults(injected) {}

  // An end where it ends here.
  RunOutcome run(collectives::Communicator& communicator);
  std::optional<RunOutcome> step(loader::BatchSource& source,
                                 step::Trainer& trainer);
  std::optional<RunOutcome> end_epoch();
  std::optional<RunOutcome> catch_up();

  std::unique_ptr<loader::BatchSource> make_source();
  void begin_draws(loader::BatchSource& source);
  void note_step(const loader::Batch& batch, const step::StepResult& result,
                 double seconds);
  validation::ValidationResult validate_average(EpochRecord& record);
  void end_trace();
  // Of the newest committed step.
  std::string newest_line() const {
    return newest.result.committed ? to_json_line(newest, images_in_epoch())
                                   : restored_line;
  }

  step::FaultInjection& faults;
  RunReports reports{*this, faults};
  RunCheckpoints checkpoints{*this, reports};
  RunEnd ending{*this, reports, checkpoints, faults};
  StepRecord newest;          // on every rank: rank 0 may be lost
  bool stop_agreed = false;   // by the vote of the newest step
  bool leave_agreed = false;  // likewise
  memory::BoxBoundMonitor labels{predict::label_bound(config)};
};

RunOutcome TrainingRun::Implementation::run(
    collectives::Communicator& communicator) {
  const memory::PhaseWatch start_up("start-up", device.memory());
  prepare(communicator);
  if (!buddies) carried.held.clear();  // else with the first copies
  reports.begin();
  std::unique_ptr<loader::BatchSource> source;
  step::Trainer trainer(
      {gains, schedule, assignment.plan, config.skip_non_finite,
       collective_schedule, &faults, config.host_memory_limit,
       step::loader_options(config, state->model()).assign, memory,
       teacher.get(), [&source] { return source->made_ahead(); },
       config.cuda_graphs},
      *state, *mesh);
  reports.note_memory(
      start_up.compare(predict::estimate_start_up(memory, mesh->here)));
  source = make_source();
  begin_pictures();
  if (epoch_is_unrecorded()) {  // the run was cut between steps and results
    if (auto ended = end_epoch()) return *ended;
  } else if (assignment.generation > 1) {
    if (auto ended = catch_up()) return *ended;
  }
  for (;;) {
    if (is_between_epochs()) state->start_epoch();
    if (config.image_weights) begin_draws(*source);
    do {
      if (auto ended = step(*source, trainer)) return *ended;
    } while (!is_between_epochs());
    trainer.release_graphs();
    if (auto ended = end_epoch()) return *ended;
  }
}

std::optional<RunOutcome> TrainingRun::Implementation::step(
    loader::BatchSource& source, step::Trainer& trainer) {
  const auto start = std::chrono::steady_clock::now();
  if (tracer) tracer->begin_step();
  const loader::Batch batch = source.next();
  checkpoints.settle();
  if (const auto event = labels.look_at(batch)) {
    reports.report(batch.step, *event);
  }
  const step::StepResult result = trainer.train_step(
      batch,
      {client.stop_requested(), client.leave_requested(assignment.generation)});
  if (tracer && tracer->end_step(mesh->world)) end_trace();
  for (const memory::StepEvent& event : result.events) {
    reports.report(batch.step, event);
  }
  if (!result.committed) return ending.refuse_step(result, batch);
  if (result.lowered_scale && assignment.rank == 0) {
    reports.report(batch.step, {"loss_scale", lowered_scale_text(result)});
  }
  reports.note_first_step();
  note_step(
      batch, result,
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start)
          .count());

  if (is_between_epochs()) return std::nullopt;  // end_epoch
  if (const auto reason = ending.reason()) return ending.complete(*reason);
  if (stop_agreed) {
    return ending.interrupt("step " + std::to_string(committed()));
  }
  if (config.checkpoint_every_steps > 0 &&
      committed() % config.checkpoint_every_steps == 0) {
    trainer.release_graphs();
    checkpoints.begin();
  }
  if (leave_agreed) return ending.leave_as_asked();
  return std::nullopt;
}

void TrainingRun::Implementation::note_step(const loader::Batch& batch,
                                            const step::StepResult& result,
                                            double seconds) {
  if (result.verdict.ok()) {
    state->counters.meter.add(result.box, result.obj, result.cls);
  }
  newest = {batch.step,
            batch.epoch,
            assignment.generation,
            result.attempt,
            seconds,
            static_cast<double>(batch.global_size) / seconds,
            batch.global_samples,
            result};
  if (config.multi_scale) {
    newest.image_height = batch.image_height;
    newest.image_width = batch.image_width;
  }
  recorder->record_step(newest);
  stop_agreed = result.verdict.stop_requested;
  leave_agreed = result.verdict.leave_requested;
  reports.say_once(batch.faults);
  reports.commit(newest);
  if (!buddies) return;
  buddies->after_commit(*state, newest_line());
  carried.held.clear();
}

// Validation, results, weights and checkpoint of a finished epoch.
std::optional<RunOutcome> TrainingRun::Implementation::end_epoch() {
  step::TrainingCounters& counters = state->counters;
  const bool last = committed() >= num_steps(config, steps_in_epoch);
  EpochRecord record;
  record.epoch = committed() / steps_in_epoch - 1;
  record.step = committed();
  record.box = counters.meter.box;
  record.obj = counters.meter.obj;
  record.cls = counters.meter.cls;
  record.lr = optim::settings_at(schedule, committed() - 1, record.epoch).lr;
  bool is_best = false;
  if (inputs.validation && (!config.noval || last)) {
    reports.show_phase("validate");
    reports.begin_phase(configs::Fault::Phase::kValidation, committed());
    record.validation = validate_average(record);
    reports.end_phase(committed());
    const double fitness = record.validation->fitness();
    // As in YOLOv5 an equal fitness is saved as the best, but is no progress.
    is_best = fitness >= counters.best_fitness;
    if (fitness > counters.best_fitness) counters.best_epoch = record.epoch;
    counters.best_fitness = std::max(counters.best_fitness, fitness);
    if (config.image_weights && !config.noval) {
      counters.class_maps =
          validation::maps_by_class(*record.validation, inputs.num_classes());
    }
  }
  if (assignment.rank == 0 && record.validation) {
    reports.say_once(record.validation->faults);
  }
  recorder->record_epoch(record, is_best, last);
  const std::string epoch = "epoch " + std::to_string(record.epoch + 1);
  if (pictures && record.validation) {
    pictures->note(*record.validation, epoch, is_best);
  }
  counters.recorded_epochs = record.epoch + 1;

  if (const auto reason = ending.reason()) return ending.complete(*reason);
  if (stop_agreed) return ending.interrupt(epoch);
  if (!config.nosave) {
    checkpoints.finish();  // an epoch's own is not skipped
    checkpoints.begin();
  }
  if (leave_agreed) return ending.leave_as_asked();
  return std::nullopt;
}

// What was to follow the newest step, and was cut off with the generation
// before this one: the run's end, a checkpoint.
std::optional<RunOutcome> TrainingRun::Implementation::catch_up() {
  if (const auto reason = ending.reason()) return ending.catch_up(*reason);
  if (checkpoint_steps <
      newest_due_checkpoint(config, steps_in_epoch, committed())) {
    checkpoints.begin();
  }
  return std::nullopt;
}

std::unique_ptr<loader::BatchSource>
TrainingRun::Implementation::make_source() {
  loader::LoaderOptions options = validation::training_options(
      config, assignment.plan, inputs, state->model(), *mesh);
  options.first_step = committed();
  options.allocate_images = step::page_locked_images(device);
  if (!inputs.training)
    return std::make_unique<loader::SyntheticInput>(options);
  options.host_memory_limit_bytes = host.training;
  options.weighted_epochs = 0;  // begin_draws() opens them
  options.hooks.targets_begin = [this](int64_t step) {
    reports.begin_phase(configs::Fault::Phase::kLoader, step);
  };
  options.hooks.targets_end = [this](int64_t step) { reports.end_phase(step); };
  options.hooks.out_of_memory = [this](int64_t step, const std::string& why) {
    reports.report(
        step, memory::out_of_memory_event(
                  "loader", why, activations::CountingAllocator::take_refusal(),
                  "the loader waits and tries again"));
  };
  return std::make_unique<loader::Loader>(options);
}

// By the figures of the newest validation: the next one changes them.
void TrainingRun::Implementation::begin_draws(loader::BatchSource& source) {
  const std::vector<double> weights =
      loader::image_weights(*inputs.training, state->counters.class_maps);
  step::require_same_on_all_ranks(mesh->world, loader::digest_of(weights),
                                  "the weights of the images");
  source.draw_from(
      std::make_shared<sampling::WeightedSampler>(config.seed, weights),
      config.noval ? INT64_MAX : committed() / steps_in_epoch + 1);
}

validation::ValidationResult TrainingRun::Implementation::validate_average(
    EpochRecord& record) {
  const validation::ValidatedAverage validated =
      headroom::validation::validate_average(
          {config, memory, *inputs.validation, inputs.class_names, gains,
           collective_schedule, *state, *mesh, reports.retry("validation"),
           host.validation});
  record.validation_memory = reports.note_memory(validated.memory).ranks;
  return validated.result;
}

void TrainingRun::Implementation::end_trace() {
  if (assignment.rank == 0) {
    client.report_event(
        {"memory_trace", committed(), 0, tracer->summary(), "", false});
  }
  tracer.reset();
}

TrainingRun::TrainingRun(const control::Assignment& assignment,
                         control::CoordinatorClient& client,
                         step::FaultInjection& faults,
                         const devices::ComputeDevice& device,
                         memory::DeviceFootprint& footprint,
                         CrossGenerationState& carried)
    : implementation_(std::make_unique<Implementation>(
          assignment, client, faults, device, footprint, carried)) {}

TrainingRun::~TrainingRun() = default;

RunOutcome TrainingRun::run(collectives::Communicator& communicator) {
  return implementation_->run(communicator);
}

RunOutcome TrainingRun::save_committed() {
  Implementation& run = *implementation_;
  HEADROOM_CHECK(holds_whole_state(), "a part of a state is no state");
  run.recorder->set_mesh(nullptr);
  run.reports.leave_peers();
  run.recorder->take_over(run.newest);
  return run.ending.save_alone();
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
    run.carried.held.push_back(
        checkpoint::hold_state(*run.state, run.newest_line()));
  }
  if (!run.buddies) return;
  for (checkpoint::HostStateSnapshot& copy : run.buddies->take()) {
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

}  // namespace headroom::run
