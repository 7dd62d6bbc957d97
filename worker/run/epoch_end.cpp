#include "worker/run/epoch_end.h"

#include <algorithm>
#include <string>

#include "configs/fault.h"
#include "parallel/base/text.h"
#include "worker/validation/average_validation.h"
#include "worker/validation/validation_figures.h"

namespace headroom::run {

void EpochEnd::record(const EpochWork& work, bool is_last) {
  step::TrainingCounters& counters = state_.counters;
  const int64_t committed = counters.committed_steps;
  EpochRecord record;
  record.epoch = (committed - 1) / run_.steps_in_epoch;
  record.step = committed;
  record.box = counters.meter.box;
  record.obj = counters.meter.obj;
  record.cls = counters.meter.cls;
  record.work = work;
  record.lr = optim::settings_at(run_.schedule, committed - 1, record.epoch).lr;
  const bool validates =
      run_.data.validation && (!run_.config.noval || is_last);
  const bool is_best = validates && validate(record);
  if (run_.rank == 0 && record.validation) {
    reports_.say_once(record.validation->faults);
  }
  recorder_.record_epoch(record, is_best, is_last);
  if (pictures_ != nullptr && record.validation) {
    pictures_->note(*record.validation, cat("epoch ", record.epoch + 1),
                    is_best);
  }
  // Not counting an unfinished epoch, which a resumed run records again.
  counters.recorded_epochs = committed / run_.steps_in_epoch;
}

bool EpochEnd::validate(EpochRecord& record) {
  step::TrainingCounters& counters = state_.counters;
  reports_.show_phase(wire::WorkerPhase::kValidate);
  reports_.begin_phase(configs::Fault::Phase::kValidation, record.step);
  record.validation = validate_average(record);
  reports_.end_phase(record.step);
  const double fitness = record.validation->metric(run_.config.best_metric);
  // As in YOLOv5, weights with the same fitness replace the best ones, but
  // --patience still counts from the earlier epoch.
  const bool is_best = fitness >= counters.best_fitness;
  if (fitness > counters.best_fitness) counters.best_epoch = record.epoch;
  counters.best_fitness = std::max(counters.best_fitness, fitness);
  // If --time ends the run within an epoch, keep the old values: the rest of
  // the epoch must draw its images by them, so that a resumed run equals a run
  // without a stop.
  const bool ends_epoch = record.step % run_.steps_in_epoch == 0;
  if (run_.config.image_weights && !run_.config.noval && ends_epoch) {
    counters.class_maps =
        validation::maps_by_class(*record.validation, run_.data.num_classes());
  }
  return is_best;
}

validation::ValidationResult EpochEnd::validate_average(EpochRecord& record) {
  const validation::ValidatedAverage validated =
      headroom::validation::validate_average(
          {.config = run_.config,
           .memory = run_.memory,
           .dataset = *run_.data.validation,
           .class_names = run_.data.class_names,
           .gains = gains_,
           .state = state_,
           .mesh = *state_.mesh(),
           .num_parts = validation_parts_,
           .retry = reports_.retry("validation"),
           .host_memory_limit = host_memory_limit_,
           .images_done = [this](int64_t images, int64_t all) {
             reports_.show_validation(images, all);
           }});
  record.validation_memory = reports_.note_memory(validated.memory).ranks;
  return validated.result;
}

}  // namespace headroom::run
