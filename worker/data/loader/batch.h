// Batch: one rank's part of one global batch, ready for the network.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "parallel/plan/batch_split.h"
#include "worker/loss/target_assignment.h"

namespace headroom::loader {

struct Batch {
  int64_t step = 0;  // training only
  int64_t epoch = 0;
  int64_t global_size = 0;  // samples of the global batch
  int64_t local_begin = 0;  // the first local sample's place in it
  // Of the local samples, counted from the global batch's first.
  std::vector<plan::SampleRange> micro_batches;
  // [n, rows, W, 3] uint8, RGB, or of more or fewer bands; n may be 0. The rows
  // of the images that this rank works on: all, unless images are split.
  at::Tensor images;
  // Where a device renders the images, they have sizes alone (on LibTorch's
  // `meta`), and this has what each is made from: [n, room] uint8, of row i
  // the first packed_bytes[i] a PackedSample. Else undefined.
  at::Tensor packed;
  std::vector<int64_t> packed_bytes;
  int64_t image_height = 0, image_width = 0;  // of the whole images
  std::vector<loss::LabelRow>
      labels;                    // `image` counts from the first local sample
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
  // Matches in whole images, per micro-batch and level, `image` counting from
  // the micro-batch's first sample.
  std::vector<std::vector<loss::LevelTargets>> targets;
  std::vector<std::string> faults;  // images that failed while loading
};

}  // namespace headroom::loader
