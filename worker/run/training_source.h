// TrainingSource: the batches that a generation trains on, beginning after its
// newest committed step, from the data set or synthetic.
//
// With --image-weights the images of an epoch are drawn by the newest
// validation's mAP of their classes, so each epoch is opened after it.
//
// Errors: as Loader.
#pragma once

#include <cstdint>
#include <memory>

#include "worker/data/loader/batch.h"
#include "worker/run/run_context.h"
#include "worker/run/run_reports.h"
#include "worker/step/training_state.h"

namespace headroom::run {

class TrainingSource {
 public:
  // `host_memory_limit`: bytes of the loader. `reports` must outlive this: the
  // loader's threads call it.
  TrainingSource(const RunContext& run, step::TrainingState& state,
                 int64_t host_memory_limit, RunReports& reports);

  // With --image-weights: opens the epoch that the next step begins or
  // continues. Collective.
  void begin_epoch();
  loader::BatchSource& batches() { return *batches_; }

 private:
  const RunContext& run_;
  const step::TrainingState& state_;
  const std::unique_ptr<loader::BatchSource> batches_;
};

}  // namespace headroom::run
