// AverageValidation: the averaged weights of a run that is under way, validated
// over all its ranks, as its plan says; and the bytes that it took.
//
// Ownership: borrows everything. Threads: the one that trains. Collective.
// Errors: as validate().
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "configs/run_config.h"
#include "parallel/collectives/mesh.h"
#include "parallel/plan/memory_model.h"
#include "worker/data/dataset.h"
#include "worker/memory_comparison.h"
#include "worker/memory_retry.h"
#include "worker/pass_lists.h"
#include "worker/training_state.h"
#include "worker/validate.h"

namespace headroom {

struct AverageValidation {
  const RunConfig& config;
  const MemoryRequest& memory;  // the run's, with its plan
  const Dataset& dataset;
  const std::vector<std::string>& class_names;
  const LossGains& gains;
  const PassLists& pass_lists;  // of this rank's rows
  TrainingState& state;
  Mesh& mesh;
  MemoryRetry retry;
  int64_t host_memory_limit = 0;  // of its loader; 0: the default
};

struct ValidatedAverage {
  ValidationResult result;
  MemoryComparison memory;  // of this rank
};

ValidatedAverage validate_average(const AverageValidation& of);

// What the memory model wants to know of images that go through at once.
ValidationShape validation_shape(const Batch& part);

}  // namespace headroom
