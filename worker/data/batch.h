// Batch: one rank's part of one global batch, ready for the network.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "worker/loss/target_assignment.h"

namespace headroom {

struct Batch {
  int64_t step = 0;  // training only
  int64_t epoch = 0;
  int64_t global_size = 0;  // samples of the global batch
  int64_t local_begin = 0;  // the first local sample's place in it
  // [n, H, W, 3] uint8, RGB; n may be 0.
  at::Tensor images;
  std::vector<LabelRow> labels;  // `image` counts from the first local sample
  std::vector<int64_t> samples;  // n indices into the data set
  // Training: the whole global batch in its order, for the ledger.
  std::vector<int64_t> global_samples;
  // Letterbox of each sample, to map boxes back (validation).
  struct Geometry {
    int64_t height = 0, width = 0;  // of the source image, EXIF applied
    double ratio = 1;               // network pixels per source pixel
    double pad_x = 0, pad_y = 0;
  };
  std::vector<Geometry> geometry;
  // Matches per micro-batch and level, `image` counting from its first sample.
  std::vector<std::vector<LevelTargets>> targets;
  std::vector<std::string> faults;  // images that failed while loading
};

}  // namespace headroom
