#include "parallel/predict/rank_share.h"

#include <algorithm>

#include "configs/layers/model_table.h"
#include "parallel/base/device_scratch.h"
#include "parallel/base/head_fields.h"
#include "parallel/plan/exchange_sizes.h"
#include "parallel/plan/plan_parts.h"
#include "parallel/predict/op_context.h"

namespace headroom::predict {
namespace {

// A match has 5 indices, and 6 elements: a box of 4 and an anchor of 2.
constexpr int64_t kIndicesPerMatch = 5;
constexpr int64_t kElementsPerMatch = 6;
// Bytes of votes, reports, counters, anchors and single values.
constexpr int64_t kSmallBytes = 64 << 10;

SimulatedStage stage_of(const MemoryRequest& request,
                        const plan::MeshCoordinates& rank) {
  const plan::Plan& plan = request.plan;
  SimulatedStage stage;
  stage.layers = request.layers;
  const auto [begin, end] = plan::layers_of_stage(
      plan.stage_begins, static_cast<size_t>(rank.pipeline_stage),
      request.layers.size());
  stage.begin = begin;
  stage.end = end;
  stage.policies = plan.activation_policies;
  stage.num_shards = plan.layout.data_parallel_size;
  stage.zero_stage = stage.num_shards > 1 ? plan.zero_stage : 0;
  stage.fetches_ahead = request.fetches_ahead && stage.zero_stage == 3;
  stage.image_channels = request.image_channels;
  stage.sample_bytes = request.sample_bytes;
  stage.num_frozen_layers = request.num_frozen_layers;
  stage.teacher = request.teacher;
  return stage;
}

}  // namespace

RankShare::RankShare(const MemoryRequest& request,
                     const plan::MeshCoordinates& rank)
    : request_(request),
      rank_(rank),
      stage_(stage_of(request, rank)),
      cut_(plan::batch_cut(plan(), request.global_batch_size)),
      largest_stride_(layers::largest_stride(request.layers)) {
  samples_ = largest_batch();
  part_ = part_with(samples_);
}

plan::BatchPart RankShare::part_with(int64_t samples) const {
  return plan::part_of(cut_, samples, smallest_map_elements(),
                       rank_.data_parallel_rank);
}

int64_t RankShare::largest_batch() const {
  if (request_.step) return request_.step->global_size;
  const int64_t full = request_.global_batch_size;
  const int64_t last = request_.num_images % full;
  if (last == 0 || !cut_.groups.even) return full;
  const auto in_flight = [&](int64_t samples) {
    const plan::BatchPart part = part_with(samples);
    return part.micro_batches.front().size() *
           std::min<int64_t>(
               static_cast<int64_t>(part.micro_batches.size()),
               plan().layout.pipeline_parallel_size - rank_.pipeline_stage);
  };
  return in_flight(last) > in_flight(full) ? last : full;
}

int64_t RankShare::most_local_samples() const {
  return request_.step || samples_ == request_.global_batch_size
             ? part_.local.size()
             : part_with(request_.global_batch_size).local.size();
}
int64_t RankShare::height() const {
  return request_.step ? request_.step->image_height : request_.image_height;
}
int64_t RankShare::width() const {
  return request_.step ? request_.step->image_width : request_.image_width;
}
int64_t RankShare::smallest_map_elements() const {
  return height() / largest_stride_ * (width() / largest_stride_);
}
int64_t RankShare::own_rows(int64_t height) const {
  return plan::share_of(height / largest_stride_,
                        plan().layout.spatial_parallel_size, rank_.spatial_rank)
             .size() *
         largest_stride_;
}

MicroBatchShape RankShare::shape(int64_t samples, int64_t groups,
                                 int64_t height, int64_t width) const {
  MicroBatchShape result;
  result.samples = samples;
  result.groups = groups;
  result.image_height = own_rows(height);
  result.image_width = width;
  result.neighbours =
      std::min<int64_t>(plan().layout.spatial_parallel_size - 1, 2);
  result.element_bytes = request_.map_bytes;
  result.convolves_in_float = request_.convolves_in_float;
  result.onednn_isa = request_.onednn_isa;
  result.on_device = request_.on_device;
  result.adds_gradients = request_.on_device && plan().zero_stage < 2;
  result.workspaces = request_.workspaces;
  result.num_threads = request_.num_threads;
  return result;
}

MicroBatchShape RankShare::micro_batch(size_t index) const {
  const plan::SampleRange& range = part_.micro_batches[index];
  return shape(range.size(), num_groups(range), height(), width());
}

int64_t RankShare::num_groups(const plan::SampleRange& micro_batch) const {
  const auto groups =
      plan::batch_norm_groups(samples(), cut_.groups, smallest_map_elements());
  return std::ranges::count_if(groups, [&](const plan::SampleRange& group) {
    return group.begin < micro_batch.end && group.end > micro_batch.begin;
  });
}

int64_t RankShare::shard_bytes() const {
  return sum_of_layers(stage_, [&](const layers::LayerCost& layer) {
    return slice_bytes(layer, request_.element_bytes, stage_.num_shards);
  });
}
int64_t RankShare::whole_bytes() const {
  if (stage_.zero_stage > 0) return stage_.num_shards * shard_bytes();
  return sum_of_layers(stage_, [&](const layers::LayerCost& layer) {
    return flat_bytes(layer, request_.element_bytes);
  });
}
int64_t RankShare::norm_channels() const {
  return sum_of_layers(stage_, [](const layers::LayerCost& layer) {
    return layer.norm_channels;
  });
}
int64_t RankShare::norm_channels_of_model() const {
  int64_t all = 0;
  for (const layers::LayerCost& layer : stage_.layers)
    all += layer.norm_channels;
  return all;
}

MemoryEstimate RankShare::resident() const {
  const int zero = stage_.zero_stage;
  const int64_t whole = whole_bytes();
  const int64_t own = zero >= 1 ? shard_bytes() : whole;
  MemoryEstimate estimate;
  estimate.parameters = zero >= 3 ? own : whole;
  // The 16-bit copy of the weights.
  if (request_.map_bytes < request_.element_bytes && zero < 3)
    estimate.parameters += whole / request_.element_bytes * request_.map_bytes;
  estimate.parameters += teacher_bytes();
  estimate.gradients = zero >= 2 ? own : whole;
  estimate.accumulated_gradients = own;
  estimate.moments = request_.num_moments * own;
  estimate.average = own;
  // The receive buffer for gradients.
  if (zero >= 2) estimate.communication += largest_slice();
  const int64_t norms = norm_channels();
  // Mean and variance of the model and of its average; the step's sums, which
  // every stage holds for all layers.
  estimate.statistics = 2 * norms * 2 * request_.element_bytes +
                        2 * norm_channels_of_model() * kDoubleBytes;
  estimate.workspace = kSmallBytes;
  if (request_.on_device) {
    // Scratch of a commit (worker/step/device_state.h): the reports of all
    // ranks with the matches of three levels, pointers to the running
    // statistics, and the kernels' list of pieces.
    estimate.workspace += plan::num_reports(plan().layout.world_size(), 3) *
                              int64_t{sizeof(double)} +
                          2 * norms * kIndexBytes +
                          own / request_.element_bytes / kMostPieceElements *
                              (kPieceBytes + kDoubleBytes);
    estimate.images = place_bytes();
  }
  return estimate;
}

int64_t RankShare::place_bytes() const {
  if (stage_.begin > 0) return 0;
  const plan::BatchPart part =
      plan::part_of(cut_, request_.global_batch_size,
                    request_.image_height / largest_stride_ *
                        (request_.image_width / largest_stride_),
                    rank_.data_parallel_rank);
  int64_t samples = 0;
  for (const plan::SampleRange& micro_batch : part.micro_batches)
    samples = std::max(samples, micro_batch.size());
  if (!request_.step)
    samples = std::max(samples, part_.micro_batches.front().size());
  const int64_t bands = layers::picture_channels(request_.image_channels);
  const int64_t image_bytes = own_rows(request_.image_height) *
                              request_.image_width * bands *
                              request_.sample_bytes;
  return samples * image_bytes +
         (request_.renders_samples ? staged_bytes(image_bytes) : 0);
}

int64_t RankShare::teacher_bytes() const {
  int64_t bytes = 0;
  for (const layers::LayerCost& layer : request_.teacher)
    bytes +=
        (layer.parameters + 2 * layer.norm_channels) * request_.element_bytes;
  return bytes;
}

int64_t RankShare::largest_slice() const {
  int64_t largest = 0;
  for (int64_t layer = stage_.begin; layer < stage_.end; ++layer)
    largest = std::max(largest,
                       slice_bytes(stage_.layers[static_cast<size_t>(layer)],
                                   request_.element_bytes, stage_.num_shards));
  return largest;
}

int64_t RankShare::most_matches(int64_t samples) const {
  const layers::LayerCost& detect = request_.layers.back();
  return predict::most_matches(
      most_boxes(request_.labels, samples).boxes,
      detect.anchors * static_cast<int64_t>(detect.inputs.size()));
}

int64_t RankShare::target_bytes(int64_t matches) const {
  // On a card, targets stay on the host; the loss's own prediction includes
  // their copy on the card.
  if (request_.on_device) return 0;
  return matches * (kIndicesPerMatch * kDoubleBytes +
                    kElementsPerMatch * request_.element_bytes);
}

}  // namespace headroom::predict
