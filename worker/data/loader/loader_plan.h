// LoaderPlan: which samples this rank's n-th batch holds, and its shape. With
// LoaderOptions::multi_scale the shape is drawn from (seed, step).
//
// The loader's threads follow it. draw_from() is its only change.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "configs/loader_memory.h"
#include "configs/multi_scale.h"
#include "worker/data/augment/augment.h"
#include "worker/data/codecs/image.h"
#include "worker/data/labels/dataset.h"
#include "worker/data/loader/loader_options.h"
#include "worker/data/sampling/sampler.h"

namespace headroom::loader {

// --- Rectangular batches: images of similar shape together, each batch just
// large enough for its own.
//
// YOLOv5's rule: sort by height / width; the batch's shape follows from its
// flattest and tallest image, each fitted into the network's size, rounded up
// to the stride after adding `pad` strides. Networks that are not square are
// handled likewise.

struct RectOptions {
  int64_t batch_size = 16;
  int64_t height = 640, width = 640;
  int64_t stride = 32;
  double pad = 0;  // strides: 0.5 in validation, 0 in training
};

struct RectBatches {
  struct Shape {
    int64_t height = 0, width = 0;
  };
  std::vector<int64_t> order;  // batch b has order[b * batch_size ..]
  std::vector<Shape> shapes;   // each batch's
};

RectBatches make_rect_batches(const std::vector<codecs::ImageSize>& sizes,
                              const RectOptions& options);

struct BatchPlan {
  // What samples[index] is made from.
  augment::SampleId id_of(uint64_t seed, int64_t index) const {
    return {seed, epoch, samples[static_cast<size_t>(index)], weights.get(),
            first_place + index};
  }

  int64_t step = 0, epoch = 0;
  int64_t global_size = 0;
  plan::BatchPart part;          // samples of the global batch
  std::vector<int64_t> samples;  // this rank's
  int64_t first_place = 0;       // samples[0]'s place in the epoch
  std::shared_ptr<const sampling::WeightedSampler>
      weights;                          // null: each sample once
  std::vector<int64_t> global_samples;  // training: the samples of all ranks
  int64_t height = 0, width = 0;        // whole images' size as they are made
  configs::InputSize input;             // their size as the network gets them
  plan::SampleRange rows;               // this rank's rows of the images
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

  // Are the samples of the `index`-th batch's epoch known?
  bool is_known(int64_t index) const;

  // Draws samples by these weights from now on, up to the end of epoch
  // `epochs` - 1.
  void draw_from(std::shared_ptr<const sampling::WeightedSampler> weights,
                 int64_t epochs);

  // How the host memory is shared out.
  configs::LoaderBudget budget() const;

 private:
  bool is_validation() const {
    return options_.mode == LoaderMode::kValidation;
  }
  int64_t step_of(int64_t index) const;
  int64_t num_batches() const;     // batches of one pass, over all ranks
  int64_t own_rows() const;        // rows of an image of the network's size
  int64_t largest_pixels() const;  // pixels of the largest whole sample
  configs::InputSize draw_input(int64_t step) const;
  int64_t largest_source_pixels() const;  // held at once while one is made

  LoaderOptions options_;
  RectBatches rect_;  // empty in mosaic mode
};

}  // namespace headroom::loader
