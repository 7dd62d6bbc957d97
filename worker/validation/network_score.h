// Mean average precision of a network on a data set's val split, by one
// process: what the commands that make smaller models print. The numbers are
// those of `headroom val` with the same images, size and batch. Errors: Error
// (exit 2, 4).
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "configs/run_config.h"
#include "worker/data/loader/batch.h"
#include "worker/validation/validate.h"
#include "worker/weights/open_weights.h"

namespace headroom::validation {

struct ImagesToScore {
  std::string data;                   // data.yaml
  std::string weights, cfg;           // whose classes are to be there
  int64_t height = 640, width = 640;  // rounded up to the model's stride
  int64_t batch = 16;
};

// The configuration of `headroom val` on them.
configs::RunConfig val_config(const ImagesToScore& images);

// Without `heads_of` the heads are the model's own.
ValidationResult score_network(model::LayerGraph& model,
                               const ImagesToScore& images,
                               HeadsOf heads_of = nullptr);

// "mAP50 0.8003, mAP 0.4391 on 87 images".
std::string describe(const ValidationResult& scores);

}  // namespace headroom::validation
