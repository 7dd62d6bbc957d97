// LabelledImages: batches made of random pixels and boxes, for tests of
// layouts.
//
// Among the images are empty and crowded ones, and regularly a batch is a short
// one, so that shares, micro-batches and batch-norm groups come out uneven. A
// sample's content depends on (step, sample) alone, not on the layout.
#pragma once

#include <cstdint>

#include "worker/data/loader/batch.h"
#include "worker/data/loader/loader_options.h"

namespace headroom {

class LabelledImages final : public loader::BatchSource {
 public:
  // Only the options of the layout, the image size and `assign` count.
  // `short_size`: samples of every `short_every`-th batch.
  LabelledImages(loader::LoaderOptions options, int64_t num_classes,
                 int64_t short_size, int64_t short_every);

  loader::Batch next() override;
  int64_t batches_per_epoch() const override { return 1 << 20; }

 private:
  loader::LoaderOptions options_;
  int64_t num_classes_;
  int64_t short_size_, short_every_;
  int64_t step_ = 0;
};

}  // namespace headroom
