// Validates the averaged weights of a run over all its ranks, by its plan, and
// measures the memory that it took. Collective, on the thread that trains.
// Errors: as validate().
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "configs/run_config.h"
#include "parallel/collectives/mesh.h"
#include "parallel/predict/memory_model.h"
#include "worker/data/labels/dataset.h"
#include "worker/memory/memory_comparison.h"
#include "worker/memory/memory_ladder.h"
#include "worker/step/training_state.h"
#include "worker/validation/validate.h"

namespace headroom::validation {

struct AverageValidation {
  const configs::RunConfig& config;
  const predict::MemoryRequest& memory;  // the run's request, with its plan
  const labels::Dataset& dataset;
  const std::vector<std::string>& class_names;
  const loss::LossGains& gains;
  step::TrainingState& state;
  collectives::Mesh& mesh;
  // The argument for StageForward::set_num_parts(); raised if this rank runs
  // out of memory.
  int64_t& num_parts;
  memory::MemoryRetry retry;
  int64_t host_memory_limit = 0;  // the loader's bytes; 0: default
  // Called with the number of images that all ranks have processed, and with
  // the number of all images.
  std::function<void(int64_t images, int64_t all)> images_done = {};
};

struct ValidatedAverage {
  ValidationResult result;
  memory::MemoryComparison memory;  // this rank's needed and predicted memory
};

ValidatedAverage validate_average(const AverageValidation& of);

// The shapes of a forward pass over the images in `part`, for the memory model.
predict::ValidationShape validation_shape(const loader::Batch& part);

}  // namespace headroom::validation
