// loader_memory: how the host memory that a loader may take is shared out
// between batches that wait, threads that make samples, and images that are
// remembered.
//
// The loader calls it with the data set's own image sizes. The planner does not
// read the data set and assumes source images as large as the network's input.
//
//   a thread   the source pictures that it holds, a mosaic's tiles (of two
//              where they are mixed; as one picture besides, for copy-paste),
//              the samples that it makes
//   a batch    this rank's rows of its share of the images, 8 or 16 bits a
//              channel; or what they are rendered from
//              (parallel/base/device_scratch.h)
//
// One batch and one thread are always there, whatever the limit.
#pragma once

#include <cstdint>

#include "configs/run_config.h"

namespace headroom::configs {

// The budget without --host-memory-limit, shared by the ranks of an image.
inline constexpr int64_t kDefaultHostMemory = int64_t{1} << 30;

struct LoaderShape {
  bool validation = false;
  bool mosaic = true;          // a training sample may be a mosaic
  int64_t image_height = 640;  // The network's input size in training.
  int64_t image_width = 640;
  int64_t own_rows = 640;      // how many lines of image_height this rank holds
  int64_t largest_pixels = 0;  // pixels of the largest whole sample
  int64_t input_pixels = 0;    // pixels of that sample in its batch, if larger
  int64_t source_pixels = 0;   // pixels of a picture that a thread holds
  int64_t images_of_a_batch = 1;  // images of this rank in a batch
  int64_t most_threads = 1;
  int64_t bands = 3;         // channels of a pixel
  int64_t sample_bytes = 1;  // 2 where the data set declares a range
  bool packs = false;        // what a device renders the images from
};

struct LoaderBudget {
  int64_t num_threads = 1;
  int64_t queue_depth = 1;  // batches that are ready or being made
  int64_t cache_bytes = 0;  // bytes of remembered images
  int64_t thread_bytes = 0;
  int64_t batch_bytes = 0;

  // What the loader takes once its caches are full.
  int64_t total_bytes() const {
    return num_threads * thread_bytes + queue_depth * batch_bytes + cache_bytes;
  }
  // The least that the loader takes, whatever the limit.
  int64_t least_bytes() const { return thread_bytes + batch_bytes; }
};

// Whether a pixel depends on its neighbours. Samples are then made whole.
bool blends_neighbours(const Hyperparameters& hyp);

// The most rows of a source picture of that height that `rows` rows of the
// warped picture are made of. A rotated picture may need all of them, and all
// are returned.
int64_t rows_reached(const Hyperparameters& hyp, int64_t rows, int64_t height);

// `limit` in bytes; 0: the default.
LoaderBudget loader_budget(const LoaderShape& shape, const Hyperparameters& hyp,
                           int64_t limit);

}  // namespace headroom::configs
