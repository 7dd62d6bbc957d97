#include "worker/data/loader/loader_plan.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <string>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/data/augment/letterbox.h"
#include "worker/data/sampling/random.h"
#include "worker/data/tiles/random_crop.h"

namespace headroom::loader {
namespace {

void check_options(const LoaderOptions& options) {
  HEADROOM_CHECK(options.dataset != nullptr && options.dataset->size() > 0,
                 "a loader needs a data set");
  HEADROOM_CHECK(options.data_parallel_rank >= 0 &&
                     options.data_parallel_rank < options.data_parallel_size,
                 cat("rank ", options.data_parallel_rank, " of ",
                     options.data_parallel_size));
  HEADROOM_CHECK(options.global_batch_size > 0 &&
                     options.micro_batch_size > 0 && options.first_step >= 0,
                 cat("global batch ", options.global_batch_size,
                     ", micro-batch ", options.micro_batch_size));
  HEADROOM_CHECK(options.image_height > 0 && options.image_width > 0 &&
                     options.image_height % options.stride == 0 &&
                     options.image_width % options.stride == 0,
                 cat(options.image_height, " x ", options.image_width,
                     " is no multiple of stride ", options.stride));
  HEADROOM_CHECK(
      !options.multi_scale || (options.mode == LoaderMode::kTrainMosaic &&
                               options.rows_of(options.image_height) ==
                                   plan::SampleRange{0, options.image_height}),
      "parts of images, or batches of like shape, are not resized");
  HEADROOM_CHECK(options.weights == nullptr ||
                     (options.mode == LoaderMode::kTrainMosaic &&
                      options.weights->size() == options.dataset->size()),
                 "weights of other samples");
}

// Objects are pasted into a picture with twice the network's sides, and offsets
// in it are limited to 31 bits.
void check_canvas(const LoaderOptions& options) {
  constexpr int64_t kMostBytes = (int64_t{1} << 31) - 1;
  const int64_t bytes = 3 * 4 * sample_bytes(!options.ranges.empty()) *
                        options.image_height * options.image_width;
  if (bytes <= kMostBytes) return;
  throw Error("data",
              "hyp.copy_paste needs mosaics of " + format_bytes(bytes) +
                  ", but " + format_bytes(kMostBytes) + " is the most",
              "--set hyp.copy_paste=0, or a smaller --img");
}

}  // namespace

RectBatches make_rect_batches(std::span<const codecs::ImageSize> sizes,
                              const RectOptions& options) {
  const auto aspect_of = [&](int64_t image) {
    return static_cast<double>(sizes[image].height) / sizes[image].width;
  };
  const auto height = static_cast<double>(options.height);
  const auto width = static_cast<double>(options.width);
  RectBatches result;
  const auto count = static_cast<int64_t>(sizes.size());
  result.order.resize(sizes.size());
  std::iota(result.order.begin(), result.order.end(), int64_t{0});
  std::stable_sort(
      result.order.begin(), result.order.end(),
      [&](int64_t a, int64_t b) { return aspect_of(a) < aspect_of(b); });

  for (int64_t begin = 0; begin < count; begin += options.batch_size) {
    const int64_t end = std::min(count, begin + options.batch_size);
    const double flattest = aspect_of(result.order[begin]);
    const double tallest = aspect_of(result.order[end - 1]);
    const double network = height / width;
    const auto padded = [&](double side) {
      return static_cast<int64_t>(std::ceil(
                 side / static_cast<double>(options.stride) + options.pad)) *
             options.stride;
    };
    // A flat image fills the network's width, a tall one its height.
    RectBatches::Shape shape;
    shape.height = padded(tallest < network ? tallest * width : height);
    shape.width = padded(flattest > network ? 1 / flattest * height : width);
    result.shapes.push_back(shape);
  }
  return result;
}

LoaderPlan::LoaderPlan(LoaderOptions options) : options_(std::move(options)) {
  check_options(options_);
  if (options_.dataset->num_polygons() == 0) options_.hyp.copy_paste = 0;
  if (options_.mode == LoaderMode::kTrainMosaic) {
    if (options_.hyp.copy_paste > 0) check_canvas(options_);
    return;
  }
  RectOptions rect;
  rect.batch_size = options_.global_batch_size;
  rect.height = options_.image_height;
  rect.width = options_.image_width;
  rect.stride = options_.stride;
  rect.pad = is_validation() ? 0.5 : 0;
  rect_ = std::make_shared<RectBatches>(
      make_rect_batches(options_.dataset->image_sizes(), rect));
}

int64_t LoaderPlan::num_batches() const {
  return sampling::steps_per_epoch(options_.dataset->size(),
                                   options_.global_batch_size);
}

int64_t LoaderPlan::batches_per_epoch() const {
  if (!is_validation()) return num_batches();
  const int64_t ranks = options_.data_parallel_size;
  return divided_up(num_batches() - options_.data_parallel_rank, ranks);
}

// In validation a rank gets whole batches, in training a part of every batch.
int64_t LoaderPlan::step_of(int64_t index) const {
  return is_validation()
             ? options_.data_parallel_rank + index * options_.data_parallel_size
             : options_.first_step + index;
}

bool LoaderPlan::is_known(int64_t index) const {
  return options_.weights == nullptr ||
         step_of(index) / num_batches() < options_.weighted_epochs;
}

void LoaderPlan::draw_from(
    std::shared_ptr<const sampling::WeightedSampler> weights, int64_t epochs) {
  HEADROOM_CHECK(options_.weights != nullptr,
                 "samples that are not drawn by weight");
  options_.weights = std::move(weights);
  options_.weighted_epochs = epochs;
}

BatchPlan LoaderPlan::undrawn_batch(int64_t index) const {
  HEADROOM_CHECK(is_known(index), "a batch of an epoch to come");
  const int64_t size = options_.dataset->size();
  BatchPlan plan;
  plan.step = step_of(index);
  const sampling::EpochStep at =
      sampling::epoch_step(plan.step, size, options_.global_batch_size);
  plan.epoch = at.epoch;
  plan.positions = at.positions;
  plan.global_size = at.positions.size();
  if (options_.mode == LoaderMode::kTrainMosaic) {
    plan.weights = options_.weights;
    if (plan.weights == nullptr) {
      plan.order = sampling::Permutation(options_.seed, at.epoch, size);
    } else {
      plan.order = [weights = plan.weights, epoch = at.epoch](int64_t place) {
        return weights->sample(epoch, place);
      };
    }
    plan.height = options_.image_height;
    plan.width = options_.image_width;
  } else {
    plan.order = [rect = rect_](int64_t place) {
      return rect->order[static_cast<size_t>(place)];
    };
    plan.height = rect_->shapes[at.step].height;
    plan.width = rect_->shapes[at.step].width;
  }
  plan.input = options_.multi_scale
                   ? draw_input(plan.step)
                   : configs::InputSize{plan.height, plan.width};
  plan.rows = options_.rows_of(plan.height);
  const plan::SampleRange all{0, plan.global_size};
  plan.first_place = at.positions.begin;
  if (is_validation()) {
    plan.part = {all, {}};
    for (int64_t begin = 0; begin < plan.global_size;
         begin += options_.micro_batch_size) {
      plan.part.micro_batches.push_back(
          {begin,
           std::min(plan.global_size, begin + options_.micro_batch_size)});
    }
    return plan;
  }
  plan.part = plan::part_of(
      options_.cut(), plan.global_size,
      options_.smallest_map_elements(plan.input.height, plan.input.width),
      options_.data_parallel_rank);
  plan.first_place += plan.part.local.begin;
  return plan;
}

configs::InputSize LoaderPlan::draw_input(int64_t step) const {
  const configs::InputSize size{options_.image_height, options_.image_width};
  sampling::RandomStream draws(options_.seed, 0, static_cast<uint64_t>(step),
                               sampling::RandomPurpose::kInputSize);
  return configs::input_size(
      size, options_.stride,
      draws.below(configs::num_input_sizes(size, options_.stride)));
}

int64_t LoaderPlan::own_rows() const {
  return options_.rows_of(options_.image_height).size();
}

int64_t LoaderPlan::largest_pixels() const {
  int64_t pixels = options_.image_height * options_.image_width;
  for (const RectBatches::Shape& shape : rect_->shapes) {
    pixels = std::max(pixels, shape.height * shape.width);
  }
  return pixels;
}

// The pixels of an image that a thread holds: the rows that are needed, or all
// rows if the image is resized or goes into a mosaic.
int64_t LoaderPlan::largest_source_pixels() const {
  const bool mosaic = options_.mode == LoaderMode::kTrainMosaic;
  const int64_t reached = options_.has_program() ? options_.image_height
                          : is_validation()
                              ? own_rows()
                              : configs::rows_reached(options_.hyp, own_rows(),
                                                      options_.image_height);
  int64_t largest = 0;
  for (const codecs::ImageSize size : options_.dataset->image_sizes()) {
    const codecs::ImageSize window =
        tiles::crop_size(size, options_.image_height, options_.image_width);
    if (!is_validation() && options_.random_crop && window != size) {
      // The stored rows that contain the window (columns if the picture is
      // stored on its side), and the window itself.
      const int64_t band = std::max(int64_t{window.height} * size.width,
                                    int64_t{window.width} * size.height);
      largest = std::max(largest, band + int64_t{window.height} * window.width);
      continue;
    }
    const codecs::ImageSize fitted =
        augment::fit_size(size, options_.image_height, options_.image_width);
    const int64_t rows = fitted == size && !mosaic
                             ? std::min<int64_t>(reached, size.height)
                             : size.height;
    const int64_t resized =
        fitted == size ? 0 : int64_t{fitted.height} * fitted.width;
    largest = std::max(largest, rows * size.width + resized);
  }
  return largest;
}

configs::LoaderBudget LoaderPlan::budget() const {
  const int64_t ranks = is_validation() ? 1 : options_.data_parallel_size;
  configs::LoaderShape shape;
  shape.validation = is_validation();
  shape.mosaic = options_.mode == LoaderMode::kTrainMosaic;
  shape.image_height = options_.image_height;
  shape.image_width = options_.image_width;
  shape.own_rows = own_rows();
  shape.largest_pixels = largest_pixels();
  if (options_.multi_scale) {
    const configs::InputSize largest = configs::largest_input_size(
        {options_.image_height, options_.image_width}, options_.stride);
    shape.input_pixels = largest.height * largest.width;
  }
  shape.source_pixels = largest_source_pixels();
  shape.bands = options_.bands;
  shape.sample_bytes = sample_bytes(!options_.ranges.empty());
  shape.packs = options_.packs_samples;
  shape.has_program = options_.has_program();
  shape.images_of_a_batch = divided_up(options_.global_batch_size, ranks);
  shape.most_threads = options_.num_threads;
  return configs::loader_budget(shape, options_.hyp,
                                options_.host_memory_limit_bytes);
}

}  // namespace headroom::loader
