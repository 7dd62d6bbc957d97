#include "worker/data/loader/synthetic.h"

#include <algorithm>
#include <cstring>
#include <functional>

#include "parallel/plan/batch_split.h"
#include "worker/data/sampling/random.h"

namespace headroom::loader {
namespace {

constexpr double kSmallestSide = 0.05;  // fraction of the image's side
constexpr double kLargestSide = 0.5;

void fill_random(uint8_t* bytes, int64_t count, sampling::RandomStream& draws) {
  for (int64_t at = 0; at < count; at += 8) {
    const uint64_t bits = draws.bits();
    std::memcpy(bytes + at, &bits, std::min<int64_t>(8, count - at));
  }
}

loss::LabelRow draw_box(int64_t image, sampling::RandomStream& draws) {
  loss::LabelRow row;
  row.image = image;
  row.class_index = draws.below(kSyntheticClasses);
  row.w = draws.uniform(kSmallestSide, kLargestSide);
  row.h = draws.uniform(kSmallestSide, kLargestSide);
  row.cx = draws.uniform(row.w / 2, 1 - row.w / 2);
  row.cy = draws.uniform(row.h / 2, 1 - row.h / 2);
  return row;
}

}  // namespace

SyntheticInput::SyntheticInput(const LoaderOptions& options) {
  const plan::BatchPart part = plan::part_of(
      options.cut(), options.global_batch_size,
      options.smallest_map_elements(options.image_height, options.image_width),
      options.data_parallel_rank);
  const plan::SampleRange local = part.local;
  const int64_t height = options.image_height;
  const plan::SampleRange rows = options.rows_of(height);
  batch_.step = options.first_step;
  batch_.global_size = options.global_batch_size;
  batch_.local_begin = local.begin;
  batch_.positions = {0, options.global_batch_size};
  batch_.order = std::identity();
  batch_.micro_batches = part.micro_batches;
  batch_.image_height = height;
  batch_.image_width = options.image_width;
  batch_.images = make_image_tensor(
      local.size(), rows.size(), options.image_width, options.bands,
      options.allocate_images, image_type(!options.ranges.empty()));
  const int64_t row_bytes = options.image_width * options.bands *
                            sample_bytes(!options.ranges.empty());
  std::vector<uint8_t> image(static_cast<size_t>(height * row_bytes));
  for (int64_t i = 0; i < local.size(); ++i) {
    const int64_t sample = local.begin + i;
    sampling::RandomStream draws(options.seed, 0, static_cast<uint64_t>(sample),
                                 sampling::RandomPurpose::kSyntheticImage);
    for (int64_t box = 0; box < kSyntheticBoxesPerImage; ++box) {
      batch_.labels.push_back(draw_box(i, draws));
    }
    fill_random(image.data(), static_cast<int64_t>(image.size()), draws);
    auto* const images =
        static_cast<uint8_t*>(batch_.images.mutable_data_ptr());
    std::memcpy(images + i * rows.size() * row_bytes,
                image.data() + rows.begin * row_bytes,
                static_cast<size_t>(rows.size() * row_bytes));
    batch_.samples.push_back(sample);
    batch_.geometry.push_back({options.image_height, options.image_width});
  }
  assign_micro_batches(batch_, options.assign, options.pack);
}

Batch SyntheticInput::next() {
  batch_.epoch = batch_.step / kSyntheticStepsPerEpoch;
  Batch batch = batch_;
  ++batch_.step;
  return batch;
}

}  // namespace headroom::loader
