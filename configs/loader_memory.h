// loader_memory: divides a loader's host memory between waiting batches,
// threads that make samples, and cached images.
//
// The loader calls it with the data set's own image sizes. The planner does not
// read the data set and assumes source images as large as the network's input.
//
// Ranks of a machine put their bytes for cached images together and share one
// cache, so that an image is decoded and kept once a machine.
//
//   a thread   its source pictures, the tiles of a mosaic (of two mosaics with
//              mixup; with copy-paste also a picture that joins the tiles), and
//              the samples that the thread makes; --augment-program returns a
//              second one
//   a batch    this rank's rows of its share of the images, 8 or 16 bits a
//              channel; or the packs from which a device renders the images
//              (parallel/base/device_scratch.h)
//
// There is at least one batch and one thread, even if they exceed the limit.
#pragma once

#include <cstdint>

#include "configs/run_config.h"

namespace headroom::configs {

// The budget without --host-memory-limit, divided among the ranks that share an
// image.
inline constexpr int64_t kDefaultHostMemory = int64_t{1} << 30;

struct LoaderShape {
  bool validation = false;
  bool mosaic = true;          // a training sample may be a mosaic
  int64_t image_height = 640;  // The network's input size in training.
  int64_t image_width = 640;
  int64_t own_rows = 640;      // rows of image_height that this rank holds
  int64_t largest_pixels = 0;  // pixels of the largest whole sample
  // Pixels of an image in a batch; counts only if larger than largest_pixels.
  int64_t input_pixels = 0;
  int64_t source_pixels = 0;      // pixels of a thread's source picture
  int64_t images_of_a_batch = 1;  // images of this rank in a batch
  int64_t most_threads = 1;
  int64_t bands = 3;         // channels of a pixel
  int64_t sample_bytes = 1;  // 2 if the data set declares a range
  bool packs = false;        // whether a device renders the images from packs
  bool has_program = false;  // whether samples go through --augment-program
};

struct LoaderBudget {
  int64_t num_threads = 1;
  int64_t queue_depth = 1;  // batches that are ready or being made
  int64_t cache_bytes = 0;  // bytes of cached images
  int64_t thread_bytes = 0;
  int64_t batch_bytes = 0;

  // Bytes of the loader once its caches are full.
  int64_t total_bytes() const {
    return num_threads * thread_bytes + queue_depth * batch_bytes + cache_bytes;
  }
  // The fewest bytes with which the loader can work.
  int64_t least_bytes() const { return thread_bytes + batch_bytes; }
};

// Whether a sample's pixels depend on neighbouring pixels (blur, CLAHE). If so,
// every rank makes whole samples.
bool blends_neighbours(const Hyperparameters& hyp);

// The most rows of a source picture with `height` rows that contribute to
// `rows` rows of the warped picture. If pictures are rotated, this is `height`.
int64_t rows_reached(const Hyperparameters& hyp, int64_t rows, int64_t height);

// `limit` in bytes; 0 means kDefaultHostMemory.
LoaderBudget loader_budget(const LoaderShape& shape, const Hyperparameters& hyp,
                           int64_t limit);

// Bytes of the images that `ranks` ranks of a machine cache together, in memory
// that they share: the sum of their LoaderBudget::cache_bytes, but at most 3/4
// of the machine's free memory. `free_bytes` is 0 if that is unknown.
int64_t shared_cache_bytes(int64_t cache_bytes, int64_t ranks,
                           int64_t free_bytes);

}  // namespace headroom::configs
