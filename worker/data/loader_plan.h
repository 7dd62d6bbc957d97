// LoaderPlan: which samples this rank's n-th batch holds, and its shape. With
// LoaderOptions::multi_scale the shape is drawn from (seed, step).
//
// Pure: what the loader's threads then do.
#pragma once

#include <cstdint>
#include <vector>

#include "configs/loader_memory.h"
#include "configs/multi_scale.h"
#include "worker/data/dataset.h"
#include "worker/data/loader_options.h"
#include "worker/data/rect_batches.h"
#include "worker/data/sampler.h"

namespace headroom {

struct BatchPlan {
  int64_t step = 0, epoch = 0;
  int64_t global_size = 0;
  BatchPart part;                       // in samples of the global batch
  std::vector<int64_t> samples;         // of this rank
  std::vector<int64_t> global_samples;  // training: of all ranks
  int64_t height = 0, width = 0;        // of whole images as they are made
  InputSize input;                      // of them as the network gets them
  SampleRange rows;                     // of the images, for this rank
};

class LoaderPlan {
 public:
  // Throws Error (exit 2): impossible options.
  explicit LoaderPlan(LoaderOptions options);

  // Batches of one pass, for this rank.
  int64_t batches_per_epoch() const;

  // The `index`-th batch this loader yields; in validation
  // REQUIRES: index < batches_per_epoch().
  BatchPlan batch(int64_t index) const;

  // How the host memory is shared out.
  LoaderBudget budget() const;

 private:
  bool is_validation() const {
    return options_.mode == LoaderMode::kValidation;
  }
  int64_t num_batches() const;     // of one pass, over all ranks
  int64_t own_rows() const;        // of an image of the network's size
  int64_t largest_pixels() const;  // of whole samples
  InputSize draw_input(int64_t step) const;
  int64_t largest_source_pixels() const;  // held at once while one is made

  LoaderOptions options_;
  RectBatches rect_;  // empty in mosaic mode
};

}  // namespace headroom
