// TrainingSource: the training batches of a generation, from the data set or
// synthetic. The first batch is for the step after the newest committed step.
//
// With --image-weights the classes' mAP in the newest validation decides which
// images are drawn, so each epoch is opened after that validation.
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
  // `host_memory_limit`: bytes of the loader. `images`: the cache that it
  // shares, or nullptr. `reports` must outlive this object, because the
  // loader's threads call it.
  TrainingSource(const RunContext& run, step::TrainingState& state,
                 int64_t host_memory_limit,
                 std::shared_ptr<loader::SharedImages> images,
                 RunReports& reports);

  // With --image-weights: opens the epoch of the next step. Collective.
  void begin_epoch();
  loader::BatchSource& batches() { return *batches_; }

 private:
  const RunContext& run_;
  const step::TrainingState& state_;
  const std::unique_ptr<loader::BatchSource> batches_;
};

}  // namespace headroom::run
