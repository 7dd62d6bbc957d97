// SyntheticInput: constant random images with 8 boxes each and 80 classes, for
// benchmarks that must not measure files or decoders.
//
// One global batch is drawn from the seed; it is the same for any number of
// ranks. A rank holds its part of it and returns the same tensors at every
// step. An epoch has 1,000 steps.
#pragma once

#include "worker/data/loader/batch.h"
#include "worker/data/loader/loader_options.h"

namespace headroom::loader {

using configs::kSyntheticStepsPerEpoch;
inline constexpr int64_t kSyntheticBoxesPerImage = 8;
using configs::kSyntheticClasses;

class SyntheticInput : public BatchSource {
 public:
  // Uses only seed, first_step, image size, batch and layout options, `assign`,
  // `pack` and `allocate_images`.
  explicit SyntheticInput(const LoaderOptions& options);

  Batch next() override;
  const Batch* made_ahead() override { return &batch_; }
  int64_t batches_per_epoch() const override { return kSyntheticStepsPerEpoch; }

 private:
  Batch batch_;
};

}  // namespace headroom::loader
