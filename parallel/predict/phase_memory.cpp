#include "parallel/predict/phase_memory.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "parallel/base/head_fields.h"
#include "parallel/predict/op_context.h"
#include "parallel/predict/rank_share.h"

namespace headroom::predict {
namespace {

constexpr int kGathered = 3;  // the ZeRO stage with gathered layers

class EvaluationRun {
 public:
  explicit EvaluationRun(const EvaluationRequest& request)
      : request_(request),
        stage_(request.stage),
        shape_(request.shape),
        whole_(request.shape) {
    stage_.num_frozen_layers = static_cast<int64_t>(stage_.layers.size());
    stage_.policies.clear();
    stage_.teacher.clear();
    if (stage_.zero_stage > 0) stage_.zero_stage = kGathered;
    whole_.image_height = request.whole_image_height;
    whole_.neighbours = 0;
  }

  int64_t peak_bytes() {
    std::vector<Map> heads = forward();
    if (stage_.has_head()) {
      if (shape_.is_split()) heads = joined(std::move(heads));
      if (request_.spatial_rank == 0) examine(heads);
    }
    return buffers_.peak_bytes();
  }

 private:
  std::vector<Map> forward() {
    MicroBatch images(buffers_, stage_, shape_, {});
    std::vector<Memory> received;
    for (const int layer : stage_.received())
      received.push_back(buffers_.allocate(images.map_bytes(layer)));
    return images.evaluate(std::move(received));
  }

  // Each rank copies its heads into one buffer. The image's first rank receives
  // the parts of the other ranks and joins them while it still holds its own
  // heads.
  std::vector<Map> joined(std::vector<Map> heads) {
    std::vector<Memory> parts;
    for (const Map& head : heads) {
      parts.push_back(buffers_.allocate(head.memory->bytes));
      if (request_.spatial_rank != 0) continue;
      parts.push_back(buffers_.allocate(
          whole_.map_bytes(head.channels, head.stride) - head.memory->bytes));
    }
    if (request_.spatial_rank != 0) return {};
    std::vector<Map> result;
    for (const Map& head : heads)
      result.push_back(
          {buffers_.allocate(whole_.map_bytes(head.channels, head.stride)),
           head.channels, head.stride});
    return result;
  }

  void examine(const std::vector<Map>& heads) {
    const int64_t all = decoded_bytes(heads);
    {
      const Memory boxes = buffers_.allocate(all);
      if (!request_.loss.has_anchors) touch_decode(heads);
      // Non-maximum suppression reads float32.
      if (shape_.element_bytes != kFloatBytes)
        buffers_.touch(all / shape_.element_bytes * kFloatBytes);
      if (shape_.on_device) pick_predictions(heads);
    }
    // The host computes the loss without anchors
    // (worker/validation/validate.h).
    if (shape_.on_device && !request_.loss.has_anchors) return;
    Graph nobodys(buffers_);
    run_loss({whole_, buffers_, nobodys, stage_.end - 1}, heads, request_.loss);
  }

  // The rows [predictions, 5 + classes] of all images.
  int64_t decoded_bytes(const std::vector<Map>& heads) const {
    int64_t bytes = 0;
    for (const Map& head : heads) {
      if (request_.loss.has_anchors) {
        bytes += head.memory->bytes;
      } else if (&head - heads.data() < std::ssize(heads) / 2) {
        bytes += whole_.map_bytes(kFirstClass + request_.loss.num_classes,
                                  head.stride);
      }
    }
    return bytes;
  }

  // The distances, or the probabilities of the classes, of one level
  // (worker/model/place_head.h).
  void touch_decode(const std::vector<Map>& heads) {
    for (size_t level = 0; level < heads.size() / 2; ++level) {
      const int64_t stride = heads[level].stride;
      const int64_t sides = whole_.map_bytes(kBoxSides, stride);
      buffers_.touch(sides +
                     std::max(heads[level].memory->bytes,
                              heads[heads.size() / 2 + level].memory->bytes));
    }
  }

  // Selects predictions above the threshold (worker/metrics/nms.h), at most an
  // eighth of all, from the float32 copy. For each prediction memory is also
  // needed for its best score, its position, and whether it is selected.
  void pick_predictions(const std::vector<Map>& heads) {
    constexpr int64_t kMostPicked = 8, kFlagBytes = 1;
    int64_t predictions = 0, bytes = 0;
    const int64_t fields = kFirstClass + request_.loss.num_classes;
    bytes = decoded_bytes(heads) / whole_.element_bytes * kFloatBytes;
    predictions = bytes / kFloatBytes / fields;
    const Memory copy =
        buffers_.allocate(shape_.element_bytes == kFloatBytes ? 0 : bytes);
    buffers_.touch((bytes + predictions * kIndexBytes) / kMostPicked +
                   predictions * (kFloatBytes + kFlagBytes));
  }

  const EvaluationRequest& request_;
  SimulatedStage stage_;
  MicroBatchShape shape_, whole_;
  LiveBuffers buffers_;
};

}  // namespace

int64_t evaluation_peak_bytes(const EvaluationRequest& request) {
  return EvaluationRun(request).peak_bytes();
}

namespace {

constexpr int64_t kStartUpSlack = 16 << 10;

// Allocations while a rank's state is built, in the order of
// worker/step/training_state.h:
//
//   the whole model
//   the rank's layers in flat buffers, with gradients; the model is freed
//   the whole model again for its average, and the rank's layers of it
//   accumulated gradients, moments
//   layers of a checkpoint, one at a time
//
// Random initial values are made in float32, then copied into their tensor.
class StartUp {
 public:
  explicit StartUp(const RankShare& share)
      : share_(share), request_(share.request()), stage_(share.stage()) {}

  int64_t peak_bytes() {
    build_learning(keep(build_model()));
    build_average(keep(build_model()));
    const Memory others = buffers_.allocate(
        (1 + request_.num_moments) *
        (stage_.zero_stage >= 1 ? share_.shard_bytes() : share_.whole_bytes()));
    const Memory sums =
        buffers_.allocate(2 * share_.norm_channels_of_model() * kDoubleBytes);
    const bool reads_checkpoint =
        request_.resumes &&
        plan::rank_of(request_.plan.layout, share_.rank()) == 0;
    if (reads_checkpoint) buffers_.touch(largest_layer() + largest_tensor());
    return buffers_.peak_bytes() + kStartUpSlack;
  }

 private:
  // Bytes of parameters, and of the mean and variance of batch norms.
  int64_t bytes_of(const layers::LayerCost& layer) const {
    return (layer.parameters + 2 * layer.norm_channels) *
           request_.element_bytes;
  }
  int64_t statistics_bytes() const {
    return 2 * share_.norm_channels() * request_.element_bytes;
  }
  int64_t largest_layer() const {
    int64_t most = 0;
    for (const layers::LayerCost& layer : stage_.layers)
      most = std::max(most, flat_bytes(layer, request_.element_bytes));
    return most;
  }
  int64_t largest_tensor() const {
    int64_t most = 0;
    for (const layers::LayerCost& layer : stage_.layers) {
      if (layer.is_head()) most = std::max(most, layer.parameters);
      if (layer.is_head()) continue;
      for (const layers::LayerProgram::Block& block : layer.program->blocks)
        most = std::max(most, std::ranges::max(block.parameters));
    }
    return most * request_.element_bytes;
  }

  Memory build_model() {
    int64_t bytes = 0;
    for (const layers::LayerCost& layer : stage_.layers)
      bytes += bytes_of(layer);
    Memory model = buffers_.allocate(bytes);
    const int64_t drawn =
        largest_tensor() / request_.element_bytes * kFloatBytes;
    const bool is_float = request_.element_bytes == kFloatBytes;
    buffers_.touch(drawn + (is_float ? 0 : largest_tensor()));
    return model;
  }
  // Copies this rank's layers from a whole model, which is then freed.
  Memory keep(Memory model) {
    model.reset();
    return buffers_.allocate(sum_of_layers(
        stage_,
        [this](const layers::LayerCost& layer) { return bytes_of(layer); }));
  }
  // Makes flat buffers while the model's own tensors still exist, then the
  // slices of those buffers under ZeRO.
  void build_learning(Memory model) {
    const bool is_mixed = request_.map_bytes < request_.element_bytes;
    const int64_t whole = share_.whole_bytes();
    statistics_ = buffers_.allocate(statistics_bytes());
    values_ = buffers_.allocate(whole);
    gradients_ = buffers_.allocate(whole);
    model.reset();
    if (stage_.zero_stage == 3)
      values_ = buffers_.allocate(share_.shard_bytes());
    if (is_mixed && stage_.zero_stage < 3)
      compute_weights_ = buffers_.allocate(whole / 2);
    if (stage_.zero_stage < 2) return;
    received_ = buffers_.allocate(share_.largest_slice());
    gradients_ = buffers_.allocate(share_.shard_bytes());
  }
  void build_average(Memory model) {
    average_statistics_ = buffers_.allocate(statistics_bytes());
    average_ = buffers_.allocate(share_.whole_bytes());
    model.reset();
    if (stage_.zero_stage > 0)
      average_ = buffers_.allocate(share_.shard_bytes());
  }

  const RankShare& share_;
  const MemoryRequest& request_;
  const SimulatedStage& stage_;
  LiveBuffers buffers_;
  Memory statistics_, values_, compute_weights_, gradients_, received_;
  Memory average_statistics_, average_;
};

// Validation images are padded by half a stride and to whole strides.
ValidationShape largest_shape(const RankShare& share) {
  const MemoryRequest& request = share.request();
  ValidationShape shape;
  shape.samples = share.plan().validation_images;
  const auto padded = [&](int64_t validation, int64_t training) {
    return (validation > 0 ? validation : training) + share.largest_stride();
  };
  shape.image_height =
      padded(request.validation_image_height, request.image_height);
  shape.image_width =
      padded(request.validation_image_width, request.image_width);
  shape.matches.assign(request.layers.back().inputs.size(), 0);
  shape.matches.front() = share.most_matches(shape.samples);
  return shape;
}

}  // namespace

MemoryEstimate estimate_start_up(const MemoryRequest& request,
                                 const plan::MeshCoordinates& rank) {
  const RankShare share(request, rank);
  MemoryEstimate estimate = share.resident();
  // Models are built on the host, then their tensors are copied.
  if (request.on_device) {
    estimate.images = 0;  // at start-up no images are loaded
    return estimate;
  }
  estimate.transient =
      std::max<int64_t>(0, StartUp(share).peak_bytes() + share.teacher_bytes() -
                               (estimate.total() - estimate.workspace));
  // The teacher is loaded first. Loading takes three times its size: its
  // tensors, the file's tensors, and a buffer for initial weights.
  const int64_t reading = 3 * share.teacher_bytes();
  estimate.transient += std::max<int64_t>(0, reading - estimate.total());
  return estimate;
}

MemoryEstimate estimate_validation(const MemoryRequest& request,
                                   const plan::MeshCoordinates& rank) {
  const RankShare share(request, rank);
  MemoryEstimate estimate = share.resident();
  const ValidationShape shape =
      request.validation ? *request.validation : largest_shape(share);
  if (shape.samples == 0) {
    // The weights of other ranks' shards are still gathered.
    if (share.stage().zero_stage > 0)
      estimate.communication +=
          share.largest_slice() * share.stage().num_shards;
    return estimate;
  }
  EvaluationRequest evaluation;
  evaluation.stage = share.stage();
  // Averaged weights are evaluated in their own type.
  evaluation.shape = share
                         .shape(shape.samples, /*groups=*/1, shape.image_height,
                                shape.image_width)
                         .widened();
  evaluation.whole_image_height = shape.image_height;
  evaluation.spatial_rank = rank.spatial_rank;
  evaluation.loss = {request.num_classes, shape.matches, request.focal_loss,
                     request.smooths_labels};
  evaluation.loss.has_anchors = request.layers.back().anchors > 0;
  evaluation.loss.boxes = most_boxes(request.labels, shape.samples).boxes;
  const int64_t peak = evaluation_peak_bytes(evaluation);
  const int64_t images =
      evaluation.stage.begin > 0
          ? 0
          : evaluation.shape.map_bytes(request.image_channels, 1);
  estimate.images += images;
  estimate.transient = peak - images;
  return estimate;
}

MemoryEstimate estimate_checkpoint(const MemoryRequest& request,
                                   const plan::MeshCoordinates& rank) {
  const RankShare share(request, rank);
  MemoryEstimate estimate = share.resident();
  // The last step's targets, if the run ends within an epoch.
  estimate.targets = share.target_bytes(
      request.step ? request.step->batch_matches
                   : share.most_matches(share.part().local.size()));
  return estimate;
}

plan::PhaseBytes estimate_phases(const MemoryRequest& request,
                                 const plan::MeshCoordinates& rank) {
  plan::PhaseBytes bytes;
  bytes.start_up = estimate_start_up(request, rank).total();
  bytes.training = estimate_rank_memory(request, rank).total();
  bytes.validation = estimate_validation(request, rank).total();
  bytes.checkpoint = estimate_checkpoint(request, rank).total();
  return bytes;
}

}  // namespace headroom::predict
