// TrainingSource: the batches that a generation trains on, from the step after
// its newest committed one: the data set's, or synthetic ones.
//
// With --image-weights the images of an epoch are drawn by what the newest
// validation says of their classes, so each epoch's draws begin with it.
//
// Errors: as Loader.
#pragma once

#include <cstdint>
#include <memory>

#include "configs/run_config.h"
#include "parallel/collectives/mesh.h"
#include "parallel/devices/compute_device.h"
#include "parallel/plan/plan.h"
#include "worker/data/loader/batch.h"
#include "worker/run/run_reports.h"
#include "worker/step/run_inputs.h"
#include "worker/step/training_state.h"

namespace headroom::run {

class TrainingSource {
 public:
  struct Inputs {
    const configs::RunConfig& config;
    const plan::Plan& plan;
    const step::RunInputs& inputs;
    const devices::ComputeDevice& device;
    int64_t steps_in_epoch = 0;
    int64_t host_memory_limit = 0;  // the share of training's loader
    step::TrainingState& state;
    collectives::Mesh& mesh;
    RunReports& reports;  // outlives it: a loader's threads report there
  };
  explicit TrainingSource(const Inputs& inputs);

  // Opens, with --image-weights, the epoch that the next step begins or
  // continues. Collective.
  void begin_epoch();
  loader::BatchSource& batches() { return *batches_; }

 private:
  std::unique_ptr<loader::BatchSource> open_batches() const;

  const Inputs in_;
  const std::unique_ptr<loader::BatchSource> batches_;
};

}  // namespace headroom::run
