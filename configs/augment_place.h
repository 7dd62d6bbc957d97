// Where a run's training samples are rendered from their recipes
// (worker/data/augment/sample_recipe.h): by the loader's threads, or by a
// kernel on the device. The bytes are the same.
//
// Threads: pure.
#pragma once

#include <string>

#include "configs/run_config.h"

namespace headroom::configs {

struct AugmentPlace {
  bool on_device = false;
  std::string reason;
};

// REQUIRES: a checked `config`.
AugmentPlace augment_place(const RunConfig& config);

}  // namespace headroom::configs
