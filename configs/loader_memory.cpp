#include "configs/loader_memory.h"

#include <algorithm>
#include <cmath>

#include "parallel/base/device_scratch.h"
#include "parallel/base/units.h"

namespace headroom::configs {
namespace {

// More prefetched batches than this do not help: threads make them in order.
constexpr int64_t kMaxQueueDepth = 8;
// Images are split where memory is short. A step then takes far longer than
// making the next batch, so one prefetched batch is enough.
constexpr int64_t kMaxSplitQueueDepth = 1;

int64_t thread_bytes(const LoaderShape& shape, const Hyperparameters& hyp) {
  // A thread makes one warped picture of this rank's rows. If pixels depend on
  // their neighbours, or a program changes them, the thread makes two pictures,
  // and each has the rows of all ranks. Mixup doubles the number of pictures.
  const bool is_whole =
      !shape.validation && (blends_neighbours(hyp) || shape.has_program);
  const int64_t own_rows = is_whole ? shape.image_height : shape.own_rows;
  int64_t made = shape.largest_pixels * own_rows / shape.image_height;
  if (is_whole) made *= 2;
  int64_t tiles = 0;  // pixels of a mosaic's tiles
  if (!shape.validation && shape.mosaic) {
    const int64_t rows =
        own_rows == shape.image_height
            ? 2 * shape.image_height
            : rows_reached(hyp, own_rows, 2 * shape.image_height);
    tiles = rows * 2 * shape.image_width;
    // Each of the nine images is as large as the network's input.
    if (hyp.mosaic9 > 0) {
      tiles = std::max(tiles, 9 * shape.image_height * shape.image_width);
    }
    // Both mosaics are loaded before either is rendered.
    if (hyp.mixup > 0) {
      made *= 2;
      tiles *= 2;
    }
    // Objects are pasted into one picture made of the tiles.
    if (hyp.copy_paste > 0) tiles += rows * 2 * shape.image_width;
  }
  return shape.bands * shape.sample_bytes *
         (shape.source_pixels + tiles + made);
}

}  // namespace

bool blends_neighbours(const Hyperparameters& hyp) {
  return hyp.blur > 0 || hyp.median_blur > 0 || hyp.clahe > 0;
}

int64_t rows_reached(const Hyperparameters& hyp, int64_t rows, int64_t height) {
  if (blends_neighbours(hyp) || hyp.degrees != 0 || hyp.shear != 0 ||
      hyp.perspective != 0 || hyp.scale >= 1) {
    return height;
  }
  // More rows for the neighbours that blending reads, and for rounding.
  constexpr int64_t kNeighbours = 3;
  const auto reached = static_cast<int64_t>(
      std::ceil(static_cast<double>(rows) / (1 - hyp.scale)));
  return std::min(height, reached + kNeighbours);
}

LoaderBudget loader_budget(const LoaderShape& shape, const Hyperparameters& hyp,
                           int64_t limit) {
  const int64_t height = shape.image_height;
  const bool is_split = shape.own_rows < height;
  // Under a spatial split a rank prefetches only its own rows.
  const auto part_of_images = [&](int64_t bytes) {
    return divided_up(bytes * shape.own_rows, height);
  };
  if (limit == 0) limit = part_of_images(kDefaultHostMemory);
  LoaderBudget budget;
  budget.thread_bytes = thread_bytes(shape, hyp);
  const int64_t image_bytes =
      part_of_images(shape.bands * shape.sample_bytes *
                     std::max(shape.largest_pixels, shape.input_pixels));
  budget.batch_bytes = (shape.packs ? packed_room(image_bytes) : image_bytes) *
                       shape.images_of_a_batch;
  // Reserve memory for one batch first; a second thread uses the rest.
  const int64_t for_threads = std::min(limit / 2, limit - budget.batch_bytes);
  budget.num_threads =
      std::clamp<int64_t>(for_threads / budget.thread_bytes, 1,
                          std::max<int64_t>(shape.most_threads, 1));
  const int64_t rest =
      std::max<int64_t>(0, limit - budget.num_threads * budget.thread_bytes);
  budget.queue_depth =
      std::clamp<int64_t>(rest / 2 / std::max<int64_t>(budget.batch_bytes, 1),
                          1, is_split ? kMaxSplitQueueDepth : kMaxQueueDepth);
  // Validation uses each image once, so it caches no image.
  if (!shape.validation) {
    budget.cache_bytes =
        std::max<int64_t>(0, rest - budget.queue_depth * budget.batch_bytes);
  }
  return budget;
}

int64_t shared_cache_bytes(int64_t cache_bytes, int64_t ranks,
                           int64_t free_bytes) {
  const int64_t wanted = cache_bytes * ranks;
  return free_bytes > 0 ? std::min(wanted, free_bytes / 4 * 3) : wanted;
}

}  // namespace headroom::configs
