#include "parallel/predict/host_memory.h"

#include <algorithm>

#include "configs/multi_scale.h"
#include "parallel/base/units.h"
#include "parallel/plan/batch_split.h"
#include "parallel/plan/plan_parts.h"
#include "parallel/predict/memory_request.h"
#include "parallel/predict/simulated_stage.h"

namespace headroom::predict {
namespace {

// A layer is held as it was received, and its largest tensor once more in the
// file's order.
constexpr int64_t kCopiesOfALayer = 2;

}  // namespace

int64_t HostMemory::total_bytes() const {
  return training.total_bytes() +
         std::max(validation.total_bytes() + records, files) + state_copy +
         peer_copies + pictures;
}

int64_t HostMemory::least_bytes() const {
  return training.least_bytes() + std::max(validation.least_bytes(), files) +
         peer_copies;
}

int64_t HostMemory::least_bytes_unseen() const {
  constexpr int64_t kLeast = int64_t{64} << 20;
  return std::max(2 * (least_bytes() - peer_copies), kLeast) + peer_copies;
}

int64_t file_bytes(const std::vector<layers::LayerCost>& layers,
                   configs::Precision precision) {
  const int64_t element = precision == configs::Precision::kFp64 ? 8 : 4;
  int64_t largest = 0;
  for (const layers::LayerCost& layer : layers) {
    largest = std::max(largest, flat_bytes(layer, element));
  }
  return kCopiesOfALayer * largest;
}

namespace {

constexpr int64_t kAlignmentBytes = 64;

int64_t element_bytes(const configs::RunConfig& config) {
  return config.precision == configs::Precision::kFp64 ? 8 : 4;
}

// Bytes of a layer's state on a rank that has one of `shards` slices. Each
// running-statistics tensor is padded to 64 bytes. There are at most as many of
// them as parameter tensors.
int64_t layer_state_bytes(const layers::LayerCost& layer,
                          const configs::RunConfig& config, int shards) {
  const int64_t element = element_bytes(config);
  return (3 + configs::num_moments(config.optimizer)) *
             (shards == 1 ? flat_bytes(layer, element)
                          : slice_bytes(layer, element, shards)) +
         2 * (2 * layer.norm_channels * element +
              kAlignmentBytes * layer.parameter_tensors);
}

}  // namespace

int64_t state_copy_bytes(const std::vector<layers::LayerCost>& layers,
                         const configs::RunConfig& config) {
  const bool is_written_beside = config.checkpoint_every_steps > 0 ||
                                 (!config.nosave && config.epochs > 1);
  if (!is_written_beside) return 0;
  int64_t bytes = 0;
  for (const layers::LayerCost& layer : layers) {
    bytes += layer_state_bytes(layer, config, 1);
  }
  return bytes;
}

int64_t peer_copy_bytes(const std::vector<layers::LayerCost>& layers,
                        const configs::RunConfig& config,
                        const plan::Plan& plan, int stage) {
  constexpr int64_t kVersions = 2;
  // Its own part is kept once more while a checkpoint is written.
  constexpr int64_t kWritten = 1;
  const int shards = plan.zero_stage > 0 ? plan.layout.data_parallel_size : 1;
  const size_t stages = plan.stage_begins.size();
  if (shards == 1 && stages <= 1) return 0;
  const auto part = [&](size_t of_stage) {
    const plan::LayerRange range =
        plan::layers_of_stage(plan.stage_begins, of_stage, layers.size());
    int64_t bytes = 0;
    for (int64_t i = range.begin; i < range.end; ++i) {
      bytes +=
          layer_state_bytes(layers[static_cast<size_t>(i)], config, shards);
    }
    return bytes;
  };
  int64_t largest = 0;
  for (size_t i = 0; i < stages; ++i) largest = std::max(largest, part(i));
  return (kVersions + kWritten) * part(static_cast<size_t>(stage)) +
         kVersions * largest;
}

// Bytes for drawing pictures: enough for a grid of 1920 x 1920 pixels and its
// images (the largest is a mosaic of four blended with another mosaic), while
// an image file of up to 4 megapixels is read.
int64_t picture_bytes(const configs::RunConfig& config) {
  return config.noplots ? 0 : int64_t{64} << 20;
}

int64_t record_bytes(const configs::RunConfig& config, int64_t images,
                     int64_t data_parallel_size, bool is_first_rank) {
  // 12 bytes each, in vectors that double when they grow.
  constexpr int64_t kRecordBytes = 2 * 12;
  constexpr int64_t kReceivedBytes = int64_t{64} << 20;
  const int64_t all = images * config.max_detections * kRecordBytes;
  const int64_t own = divided_up(all, data_parallel_size);
  return own + (is_first_rank ? std::min(kReceivedBytes, all - own) : 0);
}

HostShares host_shares(int64_t limit, const HostMemory& least) {
  if (limit == 0) return {};
  HostShares shares;
  // The state copy and pictures are optional.
  const auto takes = [&](int64_t bytes) {
    if (bytes > 0 && least.least_bytes() + bytes > limit) return false;
    limit -= bytes;
    return true;
  };
  shares.copies_state = takes(least.state_copy);
  shares.draws_pictures = takes(least.pictures);
  limit -= least.peer_copies;
  // Detections are bounded, and seldom reach the bound: they leave the loaders
  // what these need at least.
  limit -= std::clamp<int64_t>(limit - least.least_bytes(), 0, least.records);
  const int64_t between = std::max(least.validation.least_bytes(), least.files);
  const int64_t most = std::max(between, limit - least.training.least_bytes());
  shares.validation = std::min(std::max(limit / 4, between), most);
  shares.training = std::max<int64_t>(1, limit - shares.validation);
  return shares;
}

HostMemory host_memory(const configs::RunConfig& config, const plan::Plan& plan,
                       const std::vector<layers::LayerCost>& layers,
                       const plan::MeshCoordinates& rank) {
  HostMemory memory;
  if (plan::rank_of(plan.layout, rank) == 0) {
    memory.files = file_bytes(layers, config.precision);
    memory.state_copy = state_copy_bytes(layers, config);
    memory.pictures = picture_bytes(config);
  }
  memory.peer_copies =
      peer_copy_bytes(layers, config, plan, rank.pipeline_stage);
  if (config.synthetic_input) return memory;
  const int64_t stride = layers::largest_stride(layers);
  configs::LoaderShape shape;
  shape.mosaic = !config.rect;
  shape.image_height = layers::rounded_image_size(config.image_height, stride);
  shape.image_width = layers::rounded_image_size(config.image_width, stride);
  shape.own_rows =
      plan::share_of(shape.image_height / stride,
                     plan.layout.spatial_parallel_size, rank.spatial_rank)
          .size() *
      stride;
  shape.largest_pixels = shape.source_pixels =
      shape.image_height * shape.image_width;
  const configs::InputSize input = configs::largest_input_size(config, stride);
  shape.input_pixels = input.height * input.width;
  const int64_t ranks = plan.layout.data_parallel_size;
  shape.images_of_a_batch = divided_up(config.global_batch_size, ranks);
  shape.most_threads = config.loader_threads;
  shape.bands = layers::image_bands(layers);
  shape.sample_bytes = sample_bytes(!config.value_range.empty());
  configs::LoaderShape validation = shape;
  shape.packs = configs::augment_place(config).on_device;
  shape.has_program = !config.augment_program.empty();
  validation.validation = true;
  validation.input_pixels = 0;
  validation.largest_pixels =
      (shape.image_height + stride) * (shape.image_width + stride);
  validation.images_of_a_batch = validation_batch_size(config);
  configs::Hyperparameters hyp = config.hyp;
  // If the labels are unknown, assume that copy-paste finds outlines.
  const LabelBound labels = label_bound(config);
  if (labels.statistics.is_known()) hyp.copy_paste = labels.copy_paste;
  const auto share_out = [&](const HostShares& shares) {
    memory.training = configs::loader_budget(shape, hyp, shares.training);
    memory.validation =
        configs::loader_budget(validation, hyp, shares.validation);
  };
  share_out({});
  if (config.host_memory_limit > 0) {
    const HostShares shares = host_shares(config.host_memory_limit, memory);
    share_out(shares);
    if (!shares.copies_state) memory.state_copy = 0;
    if (!shares.draws_pictures) memory.pictures = 0;
  }
  return memory;
}

}  // namespace headroom::predict
