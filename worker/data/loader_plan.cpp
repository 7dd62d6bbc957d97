#include "worker/data/loader_plan.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "parallel/base/check.h"
#include "worker/data/letterbox.h"

namespace headroom {
namespace {

constexpr int64_t kDefaultHostMemory = int64_t{1} << 30;
// More batches ready than this never help: threads make them in order.
constexpr int64_t kMaxQueueDepth = 8;
// Images are split because memory is short, and then a step takes far longer
// than making the next batch beside it.
constexpr int64_t kMaxSplitQueueDepth = 1;
constexpr int64_t kChannels = 3;

// At most that many rows of a picture of that height make `rows` of the warped
// one. Turned pictures reach as far as they are wide: all of it, for short.
int64_t rows_reached(const Hyperparameters& hyp, int64_t rows, int64_t height) {
  if (hyp.degrees != 0 || hyp.shear != 0 || hyp.perspective != 0 ||
      hyp.scale >= 1) {
    return height;
  }
  constexpr int64_t kNeighbours = 3;  // that are blended in, and rounding
  const auto reached = static_cast<int64_t>(
      std::ceil(static_cast<double>(rows) / (1 - hyp.scale)));
  return std::min(height, reached + kNeighbours);
}

void check_options(const LoaderOptions& options) {
  HEADROOM_CHECK(options.dataset != nullptr && options.dataset->size() > 0,
                 "a loader needs a data set");
  HEADROOM_CHECK(options.data_parallel_rank >= 0 &&
                     options.data_parallel_rank < options.data_parallel_size,
                 "rank " + std::to_string(options.data_parallel_rank) + " of " +
                     std::to_string(options.data_parallel_size));
  HEADROOM_CHECK(options.global_batch_size > 0 &&
                     options.micro_batch_size > 0 && options.first_step >= 0,
                 "global batch " + std::to_string(options.global_batch_size) +
                     ", micro-batch " +
                     std::to_string(options.micro_batch_size));
  HEADROOM_CHECK(options.image_height > 0 && options.image_width > 0 &&
                     options.image_height % options.stride == 0 &&
                     options.image_width % options.stride == 0,
                 std::to_string(options.image_height) + " x " +
                     std::to_string(options.image_width) +
                     " is no multiple of stride " +
                     std::to_string(options.stride));
  const bool training = options.mode != LoaderMode::kValidation;
  if (training && options.hyp.copy_paste > 0 &&
      options.dataset->num_polygons() > 0) {
    throw Error("data",
                "hyp.copy_paste is " + std::to_string(options.hyp.copy_paste) +
                    " and " + std::to_string(options.dataset->num_polygons()) +
                    " labels are polygons, but polygons are kept as boxes",
                "--set hyp.copy_paste=0");
  }
}

}  // namespace

LoaderPlan::LoaderPlan(LoaderOptions options) : options_(std::move(options)) {
  check_options(options_);
  if (options_.mode == LoaderMode::kTrainMosaic) return;
  RectOptions rect;
  rect.batch_size = options_.global_batch_size;
  rect.height = options_.image_height;
  rect.width = options_.image_width;
  rect.stride = options_.stride;
  rect.pad = is_validation() ? 0.5 : 0;
  rect_ = make_rect_batches(options_.dataset->image_sizes(), rect);
}

int64_t LoaderPlan::num_batches() const {
  return steps_per_epoch(options_.dataset->size(), options_.global_batch_size);
}

int64_t LoaderPlan::batches_per_epoch() const {
  if (!is_validation()) return num_batches();
  const int64_t ranks = options_.data_parallel_size;
  return (num_batches() - options_.data_parallel_rank + ranks - 1) / ranks;
}

BatchPlan LoaderPlan::batch(int64_t index) const {
  const int64_t size = options_.dataset->size();
  const int ranks = options_.data_parallel_size;
  const int rank = options_.data_parallel_rank;
  BatchPlan plan;
  // Validation gives whole batches to ranks, training parts of each.
  plan.step =
      is_validation() ? rank + index * ranks : options_.first_step + index;
  const EpochStep at = epoch_step(plan.step, size, options_.global_batch_size);
  plan.epoch = at.epoch;
  plan.global_size = at.positions.size();
  if (options_.mode == LoaderMode::kTrainMosaic) {
    plan.global_samples = shuffled_samples(options_.seed, at, size);
    plan.height = options_.image_height;
    plan.width = options_.image_width;
  } else {
    plan.global_samples = ordered_samples(at, rect_.order);
    plan.height = rect_.shapes[at.step].height;
    plan.width = rect_.shapes[at.step].width;
  }
  plan.rows = options_.rows_of(plan.height);
  const SampleRange all{0, plan.global_size};
  if (is_validation()) {
    plan.part = {all, {all}};
    plan.samples = std::move(plan.global_samples);
    plan.global_samples.clear();
    return plan;
  }
  plan.part =
      part_of(options_.cut(), plan.global_size,
              options_.smallest_map_elements(plan.height, plan.width), rank);
  plan.samples.assign(plan.global_samples.begin() + plan.part.local.begin,
                      plan.global_samples.begin() + plan.part.local.end);
  return plan;
}

int64_t LoaderPlan::own_rows() const {
  return options_.rows_of(options_.image_height).size();
}

int64_t LoaderPlan::largest_pixels() const {
  int64_t pixels = options_.image_height * options_.image_width;
  for (const RectBatches::Shape& shape : rect_.shapes) {
    pixels = std::max(pixels, shape.height * shape.width);
  }
  return pixels;
}

// What a thread holds of an image: its rows that are needed, or where it has to
// be resized, or goes into a mosaic, all of it.
int64_t LoaderPlan::largest_source_pixels() const {
  const bool mosaic = options_.mode == LoaderMode::kTrainMosaic;
  const int64_t reached =
      is_validation()
          ? own_rows()
          : rows_reached(options_.hyp, own_rows(), options_.image_height);
  int64_t largest = 0;
  for (const ImageSize size : options_.dataset->image_sizes()) {
    const ImageSize fitted =
        fit_size(size, options_.image_height, options_.image_width);
    const int64_t rows = fitted == size && !mosaic
                             ? std::min<int64_t>(reached, size.height)
                             : size.height;
    const int64_t resized =
        fitted == size ? 0 : int64_t{fitted.height} * fitted.width;
    largest = std::max(largest, rows * size.width + resized);
  }
  return largest;
}

int64_t LoaderPlan::thread_bytes() const {
  const int64_t pixels = largest_pixels();
  // A warped picture, and one more where two are mixed.
  int64_t made = pixels * own_rows() / options_.image_height;
  int64_t tiles = 0;  // of a mosaic
  if (options_.mode == LoaderMode::kTrainMosaic) {
    if (options_.hyp.mixup > 0) made *= 2;
    const int64_t rows =
        own_rows() == options_.image_height
            ? 2 * options_.image_height
            : rows_reached(options_.hyp, own_rows(), 2 * options_.image_height);
    tiles = rows * 2 * options_.image_width;
  }
  return kChannels * (largest_source_pixels() + tiles + made);
}

LoaderBudget LoaderPlan::budget() const {
  const int64_t height = options_.image_height;
  const bool is_split = own_rows() < height;
  // Who splits an image splits what is held ready of it.
  const auto part_of_images = [&](int64_t bytes) {
    return (bytes * own_rows() + height - 1) / height;
  };
  const int64_t limit = options_.host_memory_limit_bytes > 0
                            ? options_.host_memory_limit_bytes
                            : part_of_images(kDefaultHostMemory);
  const int64_t ranks = is_validation() ? 1 : options_.data_parallel_size;
  const int64_t batch_bytes =
      part_of_images(kChannels * largest_pixels()) *
      ((options_.global_batch_size + ranks - 1) / ranks);
  const int64_t working_bytes = thread_bytes();

  LoaderBudget budget;
  budget.num_threads = std::clamp<int64_t>(
      limit / 2 / working_bytes, 1, std::max<int64_t>(options_.num_threads, 1));
  const int64_t rest =
      std::max<int64_t>(0, limit - budget.num_threads * working_bytes);
  budget.queue_depth =
      std::clamp<int64_t>(rest / 2 / batch_bytes, 1,
                          is_split ? kMaxSplitQueueDepth : kMaxQueueDepth);
  // Validation meets each image once.
  if (!is_validation()) {
    budget.cache_bytes =
        std::max<int64_t>(0, rest - budget.queue_depth * batch_bytes);
  }
  return budget;
}

}  // namespace headroom
