// LoaderOptions: the options of a rank's source of batches.
//
// Options about layout (data_parallel_*, micro_batch_size, num_threads, memory)
// change which rank computes a sample and when, but never the content of a
// batch.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "configs/run_config.h"
#include "parallel/base/value_range.h"
#include "parallel/plan/batch_split.h"
#include "worker/data/augment/augment_program.h"
#include "worker/data/codecs/image.h"
#include "worker/data/loader/batch.h"

namespace headroom::labels {
class Dataset;
}

namespace headroom::sampling {
class WeightedSampler;
}

namespace headroom::loader {

class SharedImages;

enum class LoaderMode {
  kTrainMosaic,  // mosaic with probability hyp.mosaic, else letterbox
  kTrainRect,    // batches of similar aspect ratio; not shuffled, no mosaic
  // Batches of similar aspect ratio, padded by half a stride; one pass.
  kValidation
};

// Callbacks into the code that uses a loader, called on its threads. Each may
// be empty.
struct LoaderHooks {
  // Called before and after assigning a batch's targets, on the same thread.
  std::function<void(int64_t step)> targets_begin, targets_end;
  // Called if memory runs out while making a batch; then the thread waits and
  // tries again.
  std::function<void(int64_t step, const std::string& why)> out_of_memory;
};

struct LoaderOptions {
  // Must outlive the source of batches. Not used by synthetic input.
  const labels::Dataset* dataset = nullptr;
  LoaderMode mode = LoaderMode::kTrainMosaic;
  uint64_t seed = 0;
  int64_t first_step = 0;  // counted over the whole run; training only

  int64_t image_height = 640;  // pixels; multiples of stride
  int64_t image_width = 640;
  int64_t stride = 32;      // the largest stride of the model
  int bands = 3;            // bands of an image: 3 for RGB, or those of a TIFF
  ValueRanges ranges = {};  // range of values used by the run; empty for 8 bits
  configs::Hyperparameters hyp;  // augmentation; training only
  // Whether windows of images larger than the input are used (random_crop.h);
  // training only.
  bool random_crop = false;
  // Whether each batch is resized to a random size; kTrainMosaic only.
  bool multi_scale = false;
  int64_t mosaic_epochs = INT64_MAX;  // number of first epochs with mosaics
  int64_t global_batch_size = 16;     // in validation: images in one batch
  // kTrainMosaic only: draws samples by these weights. They apply to epochs
  // below `weighted_epochs`; later epochs wait for Loader::draw_from(). If
  // nullptr, each sample is used once in an epoch.
  std::shared_ptr<const sampling::WeightedSampler> weights;
  int64_t weighted_epochs = INT64_MAX;

  int data_parallel_size = 1;
  int data_parallel_rank = 0;
  int64_t micro_batch_size = 1;
  plan::BatchNormRule batch_norm_rule;
  // The rows [begin, end) of an image of that height that this rank works on.
  // If the function is empty, the rank works on all rows.
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
  // Number of cells of an image of that size at the largest stride.
  int64_t smallest_map_elements(int64_t height, int64_t width) const {
    return (height / stride) * (width / stride);
  }

  // Training: samples are packed for a device that renders them
  // (Batch::packed).
  bool packs_samples = false;

  // Training: the program through which samples go, last.
  augment::ProgramOptions program = {};
  bool has_program() const { return !program.command.empty(); }

  PackTargets pack;      // if empty, the training step packs the targets
  AssignTargets assign;  // if empty, Batch::targets stays empty
  AllocateImages allocate_images;  // allocates the memory of batches

  LoaderHooks hooks;

  int64_t num_threads = 1;  // useful up to the number of cores; 0 means 1
  // Called at the start of each of the loader's threads; may be empty.
  std::function<void()> begin_thread;
  // Limits prefetched batches, tiles in use and cached images together. More
  // memory allows more of each; one batch and one thread are used even if they
  // exceed the limit. 0 means 1 GiB, divided between the ranks that share an
  // image.
  int64_t host_memory_limit_bytes = 0;
  // Training: the cache of images that processes of this machine share; nullptr
  // if this loader has a cache of its own.
  std::shared_ptr<SharedImages> shared_images = nullptr;
};

// The mode in which samples of that epoch are made.
inline LoaderMode mode_in(const LoaderOptions& options, int64_t epoch) {
  const bool is_closed = options.mode == LoaderMode::kTrainMosaic &&
                         epoch >= options.mosaic_epochs;
  return is_closed ? LoaderMode::kTrainRect : options.mode;
}

}  // namespace headroom::loader
