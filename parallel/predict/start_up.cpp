#include "parallel/predict/start_up.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace headroom::predict {
namespace {

constexpr int64_t kImagesOfAPass = 2;  // worker/step/collective_schedule.cpp
constexpr int64_t kStartUpSlack = 16 << 10;

class StartUp {
 public:
  explicit StartUp(const StartUpRequest& request)
      : request_(request), stage_(request.stage) {}

  int64_t peak_bytes() {
    build_learning(keep(build_model()));
    build_average(keep(build_model()));
    const Memory others =
        timeline_.allocate((1 + request_.num_moments) *
                           (stage_.zero_stage >= 1 ? shard() : flat()));
    const bool sends_slices = stage_.zero_stage == 1 || stage_.zero_stage == 2;
    const Memory slice = timeline_.allocate(sends_slices ? largest_slice() : 0);
    const Memory sums = timeline_.allocate(2 * all_norms() * kDoubleBytes);
    if (request_.resumes) timeline_.touch(largest_layer() + largest_tensor());
    if (request_.records_passes) record_passes();
    return timeline_.peak_bytes() + kStartUpSlack;
  }

 private:
  int64_t num_layers() const {
    return static_cast<int64_t>(stage_.layers.size());
  }
  template <typename Number>
  int64_t sum(int64_t begin, int64_t end, const Number& of_layer) const {
    int64_t total = 0;
    for (int64_t layer = begin; layer < end; ++layer)
      total += of_layer(stage_.layers[static_cast<size_t>(layer)]);
    return total;
  }
  template <typename Number>
  int64_t largest(int64_t begin, int64_t end, const Number& of_layer) const {
    int64_t most = 0;
    for (int64_t layer = begin; layer < end; ++layer)
      most =
          std::max(most, of_layer(stage_.layers[static_cast<size_t>(layer)]));
    return most;
  }
  // Tensor by tensor, with mean and variance of batch norms.
  int64_t model_bytes(int64_t begin, int64_t end) const {
    return sum(begin, end, [&](const ModelLayer& layer) {
      return (layer.parameters + 2 * layer.norm_channels) *
             request_.element_bytes;
    });
  }
  int64_t kept_bytes() const { return model_bytes(stage_.begin, stage_.end); }
  int64_t statistics_bytes() const {
    return sum(stage_.begin, stage_.end, [&](const ModelLayer& layer) {
      return 2 * layer.norm_channels * request_.element_bytes;
    });
  }
  int64_t all_norms() const {
    return sum(0, num_layers(),
               [](const ModelLayer& layer) { return layer.norm_channels; });
  }
  int64_t slice(const ModelLayer& layer) const {
    return slice_bytes(layer, request_.element_bytes, stage_.num_shards);
  }
  int64_t shard() const {
    return sum(stage_.begin, stage_.end,
               [&](const ModelLayer& layer) { return slice(layer); });
  }
  int64_t largest_slice() const {
    return largest(stage_.begin, stage_.end,
                   [&](const ModelLayer& layer) { return slice(layer); });
  }
  int64_t flat() const {
    if (stage_.zero_stage > 0) return stage_.num_shards * shard();
    return sum(stage_.begin, stage_.end, [&](const ModelLayer& layer) {
      return flat_bytes(layer, request_.element_bytes);
    });
  }
  int64_t largest_layer() const {
    return largest(0, num_layers(), [&](const ModelLayer& layer) {
      return flat_bytes(layer, request_.element_bytes);
    });
  }
  // No tensor is larger than its layer.
  int64_t largest_tensor() const {
    return largest(0, num_layers(), [&](const ModelLayer& layer) {
      return largest_weight(layer) * request_.element_bytes;
    });
  }
  int64_t largest_weight(const ModelLayer& layer) const {
    if (layer.is_head()) return layer.parameters;
    int64_t most = 0;
    for (const layers::LayerProgram::Block& block : layer.program->blocks)
      most = std::max(most, block.weights());
    return most;
  }

  Memory build_model() {
    Memory model = timeline_.allocate(model_bytes(0, num_layers()));
    const int64_t drawn =
        largest_tensor() / request_.element_bytes * kFloatBytes;
    const bool is_float = request_.element_bytes == kFloatBytes;
    timeline_.touch(drawn + (is_float ? 0 : largest_tensor()));
    return model;
  }
  // Of a whole model this rank's layers.
  Memory keep(Memory model) {
    model.reset();
    return timeline_.allocate(kept_bytes());
  }
  // In flat buffers, while the model's own tensors are still there; then, where
  // ZeRO splits them, in slices of those.
  void build_learning(Memory model) {
    statistics_ = timeline_.allocate(statistics_bytes());
    values_ = timeline_.allocate(flat());
    gradients_ = timeline_.allocate(flat());
    model.reset();
    if (stage_.zero_stage == 3) values_ = timeline_.allocate(shard());
    if (request_.is_mixed && stage_.zero_stage < 3)
      compute_weights_ = timeline_.allocate(flat() / 2);
    if (stage_.zero_stage < 2) return;
    received_ = timeline_.allocate(largest_slice());
    gradients_ = timeline_.allocate(shard());
  }
  void build_average(Memory model) {
    average_statistics_ = timeline_.allocate(statistics_bytes());
    average_ = timeline_.allocate(flat());
    model.reset();
    if (stage_.zero_stage > 0) average_ = timeline_.allocate(shard());
  }

  // A model whose gradients lie beside it.
  void record_passes() {
    const Memory model = keep(build_model());
    SimulatedStage stage = stage_;
    stage.policies.clear();
    stage.teacher.clear();
    stage.zero_stage = 0;
    stage.num_shards = 1;
    MicroBatchShape extents;
    extents.samples = kImagesOfAPass;
    extents.image_height = extents.image_width = request_.largest_stride;
    extents.element_bytes = request_.element_bytes;
    extents.num_threads = request_.num_threads;
    LossShape loss;
    loss.matches.assign(stage_.layers.back().inputs.size(), 0);
    MicroBatch images(timeline_, stage, extents, loss);
    std::vector<Memory> received, gradients;
    for (const int layer : stage.received())
      received.push_back(timeline_.allocate(images.map_bytes(layer)));
    images.forward(std::move(received));
    for (const int layer : stage.sent())
      gradients.push_back(timeline_.allocate(images.map_bytes(layer)));
    const Memory parameters = timeline_.allocate(kept_bytes());
    images.backward(std::move(gradients));
  }

  const StartUpRequest& request_;
  const SimulatedStage& stage_;
  MemoryTimeline timeline_;
  Memory statistics_, values_, compute_weights_, gradients_, received_;
  Memory average_statistics_, average_;
};

}  // namespace

int64_t start_up_peak_bytes(const StartUpRequest& request) {
  return StartUp(request).peak_bytes();
}

}  // namespace headroom::predict
