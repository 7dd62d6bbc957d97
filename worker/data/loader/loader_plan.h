// LoaderPlan: decides which samples this rank's n-th batch contains, and its
// shape. With LoaderOptions::multi_scale the shape is drawn from (seed, step).
//
// Immutable except for draw_from(). The loader's threads share it under a lock,
// which they do not hold while they draw the samples of a batch.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "configs/loader_memory.h"
#include "configs/multi_scale.h"
#include "worker/data/augment/augment.h"
#include "worker/data/codecs/image.h"
#include "worker/data/labels/dataset.h"
#include "worker/data/loader/loader_options.h"
#include "worker/data/sampling/sampler.h"

namespace headroom::loader {

// --- Rectangular batches: groups images of similar shape, and makes each batch
// just large enough for its images.
//
// YOLOv5's rule: sort images by height / width. The shape of a batch depends on
// its flattest and its tallest image. Both are fitted into the network's size;
// `pad` strides are added, and the result is rounded up to a multiple of the
// stride. The same rule is applied to networks that are not square.

struct RectOptions {
  int64_t batch_size = 16;
  int64_t height = 640, width = 640;
  int64_t stride = 32;
  double pad = 0;  // number of strides: 0.5 in validation, 0 in training
};

struct RectBatches {
  struct Shape {
    int64_t height = 0, width = 0;
  };
  std::vector<int64_t> order;  // batch b has order[b * batch_size ..]
  std::vector<Shape> shapes;   // one for each batch
};

RectBatches make_rect_batches(std::span<const codecs::ImageSize> sizes,
                              const RectOptions& options);

struct BatchPlan {
  // Identifies samples[index] for augmentation.
  augment::SampleId id_of(uint64_t seed, int64_t index) const {
    return {seed, epoch, samples[static_cast<size_t>(index)], weights.get(),
            first_place + index};
  }

  // Draws this rank's samples. Needs no lock.
  void draw_samples() {
    samples = sampling::samples_at(
        order, {first_place, first_place + part.local.size()});
  }

  int64_t step = 0, epoch = 0;
  int64_t global_size = 0;
  plan::BatchPart part;  // this rank's ranges of the global batch
  sampling::EpochOrder order;
  plan::SampleRange positions;   // the global batch's, in `order`
  std::vector<int64_t> samples;  // samples of this rank
  int64_t first_place = 0;       // place of samples[0] in the epoch
  // nullptr if each sample is used once.
  std::shared_ptr<const sampling::WeightedSampler> weights;
  int64_t height = 0, width = 0;  // size of whole images before resizing
  configs::InputSize input;       // size of whole images as network input
  plan::SampleRange rows;         // this rank's rows of the images
};

class LoaderPlan {
 public:
  // Throws Error (exit 2) for impossible options.
  explicit LoaderPlan(LoaderOptions options);

  // The number of this rank's batches in one pass.
  int64_t batches_per_epoch() const;

  // The `index`-th batch that this loader yields, without its samples. O(1).
  // REQUIRES: index < batches_per_epoch() in validation.
  BatchPlan undrawn_batch(int64_t index) const;

  // undrawn_batch(index), with its samples drawn.
  BatchPlan batch(int64_t index) const {
    BatchPlan plan = undrawn_batch(index);
    plan.draw_samples();
    return plan;
  }

  // Whether the samples of the `index`-th batch can be computed: the weights
  // for its epoch must be set.
  bool is_known(int64_t index) const;

  // Draws samples by these weights from now on, up to and including epoch
  // `epochs` - 1.
  void draw_from(std::shared_ptr<const sampling::WeightedSampler> weights,
                 int64_t epochs);

  // How host memory is divided between batches, threads and the cache.
  configs::LoaderBudget budget() const;

 private:
  bool is_validation() const {
    return options_.mode == LoaderMode::kValidation;
  }
  int64_t step_of(int64_t index) const;
  int64_t num_batches() const;     // batches of one pass, over all ranks
  int64_t own_rows() const;        // this rank's rows of an input-size image
  int64_t largest_pixels() const;  // pixels of the largest whole sample
  configs::InputSize draw_input(int64_t step) const;
  int64_t largest_source_pixels() const;  // pixels held while making a sample

  LoaderOptions options_;
  // Empty in mosaic mode. Orders of batches refer to it.
  std::shared_ptr<const RectBatches> rect_ = std::make_shared<RectBatches>();
};

}  // namespace headroom::loader
