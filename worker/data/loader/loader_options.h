// LoaderOptions: what a rank asks of its source of batches.
//
// Layout fields (data_parallel_*, micro_batch_size, num_threads, memory) decide
// who computes what and when, never what comes out.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "configs/run_config.h"
#include "parallel/base/value_range.h"
#include "parallel/plan/batch_split.h"
#include "worker/data/codecs/image.h"
#include "worker/data/loader/batch.h"

namespace headroom::labels {
class Dataset;
}

namespace headroom::sampling {
class WeightedSampler;
}

namespace headroom::loader {

enum class LoaderMode {
  kTrainMosaic,  // mosaic with probability hyp.mosaic, else letterbox
  kTrainRect,    // batches of similar aspect, no mosaic, no shuffle
  kValidation    // batches of similar aspect, padded by half a stride; one pass
};

// What a loader's user is told, on the loader's threads; each may be empty.
struct LoaderHooks {
  // Around the assignment of a batch's targets, on one thread.
  std::function<void(int64_t step)> targets_begin, targets_end;
  // Memory ran out while a batch was made: the thread waits and tries again.
  std::function<void(int64_t step, const std::string& why)> out_of_memory;
};

struct LoaderOptions {
  // Borrowed; outlives the source. Not used by synthetic input.
  const labels::Dataset* dataset = nullptr;
  LoaderMode mode = LoaderMode::kTrainMosaic;
  uint64_t seed = 0;
  int64_t first_step = 0;  // a step of the whole run; training only

  int64_t image_height = 640;  // pixels; multiples of stride
  int64_t image_width = 640;
  int64_t stride = 32;                // the model's largest
  int bands = 3;                      // an image's bands: RGB, or a TIFF's
  ValueRanges ranges = {};            // those of the run; none: 8 bits
  configs::Hyperparameters hyp;       // augmentation; training only
  bool random_crop = false;           // windows of larger images; training only
  bool multi_scale = false;           // batches are resized; kTrainMosaic only
  int64_t mosaic_epochs = INT64_MAX;  // epochs after them have no mosaics
  int64_t global_batch_size = 16;     // validation: images of one batch
  // kTrainMosaic only: samples are drawn by weight, those of epochs below
  // `weighted_epochs` from this; later ones wait for Loader::draw_from(). Null:
  // each sample once an epoch.
  std::shared_ptr<const sampling::WeightedSampler> weights;
  int64_t weighted_epochs = INT64_MAX;

  int data_parallel_size = 1;
  int data_parallel_rank = 0;
  int64_t micro_batch_size = 1;
  plan::BatchNormRule batch_norm_rule;
  // The rows [begin, end) of an image of that height which this rank works on;
  // none: all.
  std::function<plan::SampleRange(int64_t height)> own_rows;
  plan::BatchCut cut() const {
    return {global_batch_size, data_parallel_size, micro_batch_size,
            batch_norm_rule};
  }
  plan::SampleRange rows_of(int64_t height) const {
    return own_rows ? own_rows(height) : plan::SampleRange{0, height};
  }
  codecs::ImageLimits image_limits() const {
    codecs::ImageLimits limits;
    limits.bands = bands;
    limits.ranges = ranges;
    return limits;
  }
  // Cells of an image of that size at the largest stride.
  int64_t smallest_map_elements(int64_t height, int64_t width) const {
    return (height / stride) * (width / stride);
  }

  // Training: samples come as a device renders them (Batch::packed).
  bool packs_samples = false;

  PackTargets pack;                // none: they are packed by the step
  AssignTargets assign;            // none: Batch::targets stays empty
  AllocateImages allocate_images;  // makes the memory of a batch

  LoaderHooks hooks;

  int64_t num_threads = 1;  // 0 counts as 1
  // The first call on each of them; may be none.
  std::function<void()> begin_thread;
  // Bounds prefetched batches, tiles in use and cached images together;
  // one batch and one thread are always there. 0: 1 GiB over the ranks that
  // share an image.
  int64_t host_memory_limit_bytes = 0;
};

// How the samples of that epoch are made.
inline LoaderMode mode_in(const LoaderOptions& options, int64_t epoch) {
  const bool is_closed = options.mode == LoaderMode::kTrainMosaic &&
                         epoch >= options.mosaic_epochs;
  return is_closed ? LoaderMode::kTrainRect : options.mode;
}

}  // namespace headroom::loader
