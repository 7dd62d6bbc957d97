#include "worker/run/epoch_end.h"

#include <algorithm>
#include <string>

#include "configs/fault.h"
#include "parallel/base/text.h"
#include "worker/run/run_end.h"
#include "worker/validation/average_validation.h"
#include "worker/validation/validation_figures.h"

namespace headroom::run {

void EpochEnd::record(const EpochWork& work) {
  step::TrainingCounters& counters = in_.state.counters;
  const int64_t committed = counters.committed_steps;
  const int64_t steps_in_epoch = in_.schedule.steps_per_epoch;
  const bool is_last = committed >= num_steps(in_.config, steps_in_epoch);
  EpochRecord record;
  record.epoch = committed / steps_in_epoch - 1;
  record.step = committed;
  record.box = counters.meter.box;
  record.obj = counters.meter.obj;
  record.cls = counters.meter.cls;
  record.work = work;
  record.lr = optim::settings_at(in_.schedule, committed - 1, record.epoch).lr;
  const bool validates =
      in_.inputs.validation && (!in_.config.noval || is_last);
  const bool is_best = validates && validate(record);
  if (in_.mesh.world.rank() == 0 && record.validation) {
    in_.reports.say_once(record.validation->faults);
  }
  in_.recorder.record_epoch(record, is_best, is_last);
  if (in_.pictures != nullptr && record.validation) {
    in_.pictures->note(*record.validation, cat("epoch ", record.epoch + 1),
                       is_best);
  }
  counters.recorded_epochs = record.epoch + 1;
}

bool EpochEnd::validate(EpochRecord& record) {
  step::TrainingCounters& counters = in_.state.counters;
  in_.reports.show_phase(wire::WorkerPhase::kValidate);
  in_.reports.begin_phase(configs::Fault::Phase::kValidation, record.step);
  record.validation = validate_average(record);
  in_.reports.end_phase(record.step);
  const double fitness = record.validation->fitness();
  // An equal fitness is saved as the best, as in YOLOv5, but is no progress.
  const bool is_best = fitness >= counters.best_fitness;
  if (fitness > counters.best_fitness) counters.best_epoch = record.epoch;
  counters.best_fitness = std::max(counters.best_fitness, fitness);
  if (in_.config.image_weights && !in_.config.noval) {
    counters.class_maps =
        validation::maps_by_class(*record.validation, in_.inputs.num_classes());
  }
  return is_best;
}

validation::ValidationResult EpochEnd::validate_average(EpochRecord& record) {
  const validation::ValidatedAverage validated =
      headroom::validation::validate_average(
          {.config = in_.config,
           .memory = in_.memory,
           .dataset = *in_.inputs.validation,
           .class_names = in_.inputs.class_names,
           .gains = in_.gains,
           .state = in_.state,
           .mesh = in_.mesh,
           .num_parts = in_.validation_parts,
           .retry = in_.reports.retry("validation"),
           .host_memory_limit = in_.host_memory_limit,
           .images_done = [this](int64_t images, int64_t all) {
             in_.reports.show_validation(images, all);
           }});
  record.validation_memory = in_.reports.note_memory(validated.memory).ranks;
  return validated.result;
}

}  // namespace headroom::run
