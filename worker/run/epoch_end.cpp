#include "worker/run/epoch_end.h"

#include <ATen/ops/from_blob.h>

#include <algorithm>
#include <chrono>
#include <string>
#include <utility>

#include "configs/fault.h"
#include "configs/layers/detect_branches.h"
#include "parallel/base/text.h"
#include "worker/validation/average_validation.h"
#include "worker/validation/validation_figures.h"

namespace headroom::run {

void EpochEnd::record(const EpochWork& work, bool is_due, bool is_last) {
  began_ = std::chrono::steady_clock::now();
  step::TrainingCounters& counters = state_.counters;
  const int64_t committed = counters.committed_steps;
  EpochRecord record;
  record.epoch = epoch();
  record.step = committed;
  record.has_anchors = layers::has_anchors(run_.data.table);
  record.losses = counters.meter.means;
  record.work = work;
  record.lr = optim::settings_at(run_.schedule, committed - 1, record.epoch).lr;
  record.is_skipped = !is_due;
  const bool validates =
      run_.data.validation && is_due && (!run_.config.noval || is_last);
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

void EpochEnd::finish() {
  pace_.note(began_, std::chrono::steady_clock::now());
}

bool EpochEnd::is_due(bool is_last) {
  if (pace_.share() == 0 || is_last) return true;
  // --patience ends a run only after a validation, and --save-period keeps
  // weights that were judged.
  const int64_t best = state_.counters.best_epoch;
  const int64_t patience = run_.config.patience;
  if (patience > 0 && best >= 0 && epoch() - best >= patience) return true;
  const int64_t period = run_.config.save_period;
  if (period > 0 && (epoch() + 1) % period == 0) return true;
  const ValidationPace::Time now = std::chrono::steady_clock::now();
  int64_t is_due = pace_.is_due(now) ? 1 : 0;
  state_.mesh()->world.broadcast(at::from_blob(&is_due, {1}, at::kLong),
                                 /*root=*/0);
  if (is_due == 0 && !std::exchange(has_skipped_, true) && run_.rank == 0) {
    run_.report(
        EventKind::kCheckpoints, state_.counters.committed_steps,
        cat("epochs from ", epoch() + 1,
            " on are validated and saved only now and then: that took ",
            significant_text(pace_.seconds(), 3), " s, and training since ",
            significant_text(pace_.trained_seconds(now), 3), " s; --val-share ",
            significant_text(pace_.share(), 3),
            " keeps it to that share of the time, --val-share 0 validates "
            "every epoch"),
        /*warning=*/true);
  }
  return is_due != 0;
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
