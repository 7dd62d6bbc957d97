#include "tests/support/labelled_images.h"

#include <array>
#include <cstring>
#include <utility>
#include <vector>

#include "worker/data/loader/batch.h"
#include "worker/data/loader/loader_options.h"
#include "worker/data/sampling/random.h"

namespace headroom {
namespace {

// The numbers of boxes of images; sample numbers cycle through them.
constexpr std::array<int64_t, 5> kBoxes = {4, 0, 40, 1, 9};

}  // namespace

LabelledImages::LabelledImages(loader::LoaderOptions options,
                               int64_t num_classes, int64_t short_size,
                               int64_t short_every)
    : options_(std::move(options)),
      num_classes_(num_classes),
      short_size_(short_size),
      short_every_(short_every) {}

loader::Batch LabelledImages::next() {
  const int64_t height = options_.image_height, width = options_.image_width;
  loader::Batch batch;
  batch.step = step_;
  batch.global_size = step_ % short_every_ == short_every_ - 1
                          ? short_size_
                          : options_.global_batch_size;
  batch.image_height = height;
  batch.image_width = width;
  const plan::BatchPart part =
      plan::part_of(options_.cut(), batch.global_size,
                    options_.smallest_map_elements(height, width),
                    options_.data_parallel_rank);
  batch.local_begin = part.local.begin;
  batch.micro_batches = part.micro_batches;
  const plan::SampleRange rows = options_.rows_of(height);
  batch.images = loader::make_image_tensor(part.local.size(), rows.size(),
                                           width, options_.bands);
  std::vector<uint8_t> image(
      static_cast<size_t>(height * width * options_.bands));
  for (int64_t i = 0; i < part.local.size(); ++i) {
    const int64_t sample = part.local.begin + i;
    sampling::RandomStream draws(7, static_cast<uint64_t>(step_),
                                 static_cast<uint64_t>(sample),
                                 sampling::RandomPurpose::kSyntheticImage);
    for (uint8_t& value : image) value = static_cast<uint8_t>(draws.below(256));
    const int64_t row_bytes = width * options_.bands;
    std::memcpy(batch.images.data_ptr<uint8_t>() + i * rows.size() * row_bytes,
                image.data() + rows.begin * row_bytes,
                static_cast<size_t>(rows.size() * row_bytes));
    const auto kind = static_cast<size_t>(step_ + sample) % kBoxes.size();
    for (int64_t box = 0; box < kBoxes[kind]; ++box) {
      const double w = draws.uniform(0.05, 0.6), h = draws.uniform(0.05, 0.6);
      batch.labels.push_back({i, draws.below(num_classes_),
                              draws.uniform(w / 2, 1 - w / 2),
                              draws.uniform(h / 2, 1 - h / 2), w, h});
    }
    batch.samples.push_back(sample);
    batch.geometry.push_back({height, width});
  }
  batch.positions = {0, batch.global_size};
  batch.order = std::identity();
  loader::assign_micro_batches(batch, options_.assign);
  ++step_;
  return batch;
}

}  // namespace headroom
