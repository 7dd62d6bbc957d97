// LabelledImages: batches made of random pixels and boxes, for tests of
// layouts.
//
// Some images have no boxes and some have many, and every few steps the batch
// is smaller, so that shares, micro-batches and batch-norm groups have
// different sizes. A sample's content depends only on (step, sample), not on
// the layout.
#pragma once

#include <cstdint>

#include "worker/data/loader/batch.h"
#include "worker/data/loader/loader_options.h"

namespace headroom {

class LabelledImages final : public loader::BatchSource {
 public:
  // Uses only the layout, the image size and `assign` of the options. Every
  // `short_every`-th batch has `short_size` samples.
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
