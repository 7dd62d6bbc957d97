#include "parallel/predict/simulated_stage.h"

#include <algorithm>
#include <set>
#include <utility>

#include "configs/layers/model_table.h"
#include "parallel/base/check.h"
#include "parallel/base/units.h"

namespace headroom::predict {
namespace {

constexpr int kImages = -1;
constexpr int64_t kAlignment = 64;  // bytes

plan::ActivationPolicy policy_at(const SimulatedStage& stage, int64_t layer) {
  return stage.policies.empty() ? plan::ActivationPolicy::kKeep
                                : stage.policies.at(static_cast<size_t>(layer));
}

}  // namespace

std::vector<int> SimulatedStage::received() const {
  std::set<int> result;
  for (int64_t layer = begin; layer < end; ++layer)
    for (const int from : layers[static_cast<size_t>(layer)].inputs)
      if (from != kImages && from < begin) result.insert(from);
  return {result.begin(), result.end()};
}

std::vector<int> SimulatedStage::sent() const {
  std::set<int> result;
  for (size_t layer = static_cast<size_t>(end); layer < layers.size(); ++layer)
    for (const int from : layers[layer].inputs)
      if (from >= begin && from < end) result.insert(from);
  return {result.begin(), result.end()};
}

int64_t flat_bytes(const layers::LayerCost& layer, int64_t element_bytes) {
  const int64_t bytes = layer.parameters * element_bytes;
  // The sizes of a head are usually not multiples of the alignment.
  const auto fills = [element_bytes](const layers::LayerProgram::Block& block) {
    return std::ranges::all_of(block.parameters, [&](int64_t elements) {
      return elements * element_bytes % kAlignment == 0;
    });
  };
  const bool fills_lines =
      !layer.is_head() && std::ranges::all_of(layer.program->blocks, fills);
  return fills_lines ? bytes : bytes + layer.parameter_tensors * kAlignment;
}

int64_t slice_bytes(const layers::LayerCost& layer, int64_t element_bytes,
                    int shards) {
  return divided_up(divided_up(flat_bytes(layer, element_bytes), shards),
                    kAlignment) *
         kAlignment;
}

MicroBatch::MicroBatch(LiveBuffers& buffers, const SimulatedStage& stage,
                       const MicroBatchShape& shape, LossShape loss)
    : buffers_(buffers),
      stage_(stage),
      shape_(shape),
      loss_(std::move(loss)),
      graph_(buffers),
      offload_(buffers),
      derives_(std::ranges::any_of(
          stage.policies, [](plan::ActivationPolicy policy) {
            return policy == plan::ActivationPolicy::kLean ||
                   policy == plan::ActivationPolicy::kRecompute;
          })) {}

int64_t MicroBatch::map_bytes(int layer) const {
  return shape_.map_bytes(layer_at(layer).channels, layer_at(layer).stride);
}

int64_t MicroBatch::layer_bytes(int64_t layer) const {
  return slice_bytes(layer_at(layer), shape_.parameter_bytes(),
                     stage_.num_shards) *
         stage_.num_shards;
}

std::vector<Map> MicroBatch::evaluate(std::vector<Memory> received) {
  HEADROOM_CHECK(stage_.num_frozen_layers >= stage_.end, "a layer learns");
  Map images;
  return run(std::move(received), images);
}

std::vector<Map> MicroBatch::run(std::vector<Memory> received, Map& images) {
  const std::vector<int> layers = stage_.received();
  received_gradients_.resize(layers.size());
  std::map<int, Map> maps;
  for (size_t i = 0; i < layers.size(); ++i)
    maps[layers[i]] = received_map(layers[i], std::move(received[i]), i);
  received.clear();
  Memory colours;
  if (stage_.begin == 0) {
    buffers_.set_layer(0);
    const int64_t loaded_channels =
        layers::picture_channels(stage_.image_channels);
    // Gray images are computed from colour images.
    if (stage_.image_channels == 1)
      colours = buffers_.allocate(layers::kColours * image_bytes());
    // An evaluation holds the loaded bytes and the images made from them; a
    // training step has a fixed buffer for loaded bytes (rank_share.h).
    const bool learns = stage_.num_frozen_layers < stage_.end;
    const Memory loaded = buffers_.allocate(
        shape_.on_device && !learns
            ? loaded_channels * stage_.sample_bytes * shape_.cells(1)
            : 0);
    images = {buffers_.allocate(image_bytes()), stage_.image_channels, 1};
    // The CPU converts images to float32 first.
    if (shape_.element_bytes != kFloatBytes && !shape_.on_device)
      buffers_.touch(loaded_channels * shape_.map_bytes(1, 1) /
                     shape_.element_bytes * kFloatBytes);
  }
  teacher_heads_ = ask_teacher(images);
  return run_layers(std::move(maps), images);
}

std::vector<Map> MicroBatch::ask_teacher(const Map& images) {
  if (stage_.teacher.empty()) return {};
  SimulatedStage teacher;
  teacher.layers = stage_.teacher;
  teacher.end = teacher.num_frozen_layers =
      static_cast<int64_t>(teacher.layers.size());
  teacher.image_channels = stage_.image_channels;
  teacher.casts_weights = true;
  return MicroBatch(buffers_, teacher, shape_, {}).run_layers({}, images);
}

std::vector<Memory> MicroBatch::forward(std::vector<Memory> received) {
  if (has_graph_inputs) {
    graph_inputs_.push_back(
        buffers_.allocate(packed_target_bytes(loss_, shape_)));
  }
  Map images;
  const std::vector<Map> outputs = run(std::move(received), images);
  if (has_graph_inputs) graph_inputs_.push_back(images.memory);
  std::vector<Memory> sent;
  if (stage_.has_head()) {
    OpContext context = {shape_, buffers_, graph_, stage_.end - 1};
    LossShape loss = loss_;
    loss.has_teacher = !teacher_heads_.empty();
    loss.has_targets = has_graph_inputs;
    if (before_loss) before_loss();
    run_loss(context, outputs, loss);
    teacher_heads_.clear();
    return sent;
  }
  sent_gradients_.resize(outputs.size());
  for (size_t i = 0; i < outputs.size(); ++i) {
    sent.push_back(outputs[i].memory);
    if (!outputs[i].wants_gradient()) continue;
    Graph::Node end;
    end.layer = stage_.end - 1;
    end.inputs = {outputs[i].node};
    end.is_root = true;
    end.backward = [this, i](Gradient) {
      Graph::Outcome outcome;
      outcome.inputs = {{std::move(sent_gradients_[i]), false}};
      return outcome;
    };
    graph_.add(std::move(end));
  }
  return sent;
}

Map MicroBatch::received_map(int layer, Memory memory, size_t index) {
  if (!stage_.has_learners_before())
    return {std::move(memory), layer_at(layer).channels,
            layer_at(layer).stride};
  Graph::Node node;
  node.layer = stage_.begin;
  node.output_bytes = memory->bytes;
  node.backward = [this, index, bytes = memory->bytes](Gradient gradient) {
    // Only dense tensors are sent.
    received_gradients_[index] = gradient.is_slice ? buffers_.allocate(bytes)
                                                   : std::move(gradient.memory);
    return Graph::Outcome();
  };
  return {std::move(memory), layer_at(layer).channels, layer_at(layer).stride,
          graph_.add(std::move(node))};
}

std::vector<Map> MicroBatch::run_layers(std::map<int, Map> maps,
                                        const Map& images) {
  std::map<int, int> uses;
  for (int64_t i = stage_.begin; i < stage_.end; ++i)
    for (const int from : layer_at(i).inputs) ++uses[from];
  const std::vector<int> wanted = stage_.sent();
  for (const int layer : wanted) ++uses[layer];

  for (int64_t i = stage_.begin; i < stage_.end; ++i) {
    std::vector<Map> inputs;
    for (const int from : layer_at(i).inputs)
      inputs.push_back(from == kImages ? images : maps.at(from));
    buffers_.set_layer(i);
    if (before_layer) before_layer(i);
    if (shards_values() && layer_at(i).parameters > 0)
      provide_values(i, /*backwards=*/false);
    std::vector<Map> outputs = run_with_policy(i, inputs);
    values_.erase(i);
    for (Map& output : outputs) add_use_again(i, output);
    if (layer_at(i).is_head()) return outputs;
    maps[static_cast<int>(i)] = std::move(outputs.front());
    for (const int from : layer_at(i).inputs)
      if (from != kImages && --uses[from] == 0) maps.erase(from);
  }
  std::vector<Map> result;
  for (const int layer : wanted) result.push_back(maps.at(layer));
  return result;
}

std::vector<Map> MicroBatch::run_with_policy(int64_t layer,
                                             const std::vector<Map>& inputs) {
  OpContext context = {shape_, buffers_, graph_, layer};
  context.learns = stage_.learns(layer);
  context.casts_weights =
      shape_.is_mixed() && (shards_values() || stage_.casts_weights);
  switch (policy_at(stage_, layer)) {
    case plan::ActivationPolicy::kKeep:
      if (derives_) context.derive = Derive::kNoted;
      break;
    case plan::ActivationPolicy::kRecompute:
      if (layer_at(layer).inside() != layers::LayerInside::kNothing)
        return run_recomputed(context, inputs);
      [[fallthrough]];
    case plan::ActivationPolicy::kLean:
      context.policy = &lean_;
      context.derive = Derive::kLean;
      break;
    case plan::ActivationPolicy::kOffload:
      context.policy = &offload_;
      break;
  }
  return run_layer(context, layer_at(layer), inputs);
}

std::vector<Map> MicroBatch::run_recomputed(const OpContext& context,
                                            const std::vector<Map>& inputs) {
  RecomputeOptions options;
  if (!shards_values() && layer_at(context.layer).inside() ==
                              layers::LayerInside::kOneConvolution) {
    options.inputs = Cost::kConvolution;
    options.output = Cost::kConvolution;
  }
  return recompute(
      context,
      [&layer = layer_at(context.layer)](const OpContext& inside,
                                         std::vector<Map> given) {
        return run_layer(inside, layer, given);
      },
      inputs, options);
}

// Adds a node that gathers the layer's parameters again before its backward.
void MicroBatch::add_use_again(int64_t layer, Map& output) {
  if (!shards_values() || layer_at(layer).parameters == 0 ||
      !output.wants_gradient())
    return;
  Graph::Node node;
  node.layer = layer;
  node.output_bytes = output.memory->bytes;
  node.inputs = {output.node};
  node.backward = [this, layer](Gradient gradient) {
    provide_values(layer, /*backwards=*/true);
    Graph::Outcome outcome;
    outcome.inputs = {std::move(gradient)};
    return outcome;
  };
  output.node = graph_.add(std::move(node));
}

void MicroBatch::provide_values(int64_t layer, bool backwards) {
  if (!values_.contains(layer))
    values_[layer] = buffers_.allocate(layer_bytes(layer));
  if (!stage_.fetches_ahead) return;
  const int64_t step = backwards ? -1 : 1;
  for (int64_t next = layer + step; next >= stage_.begin && next < stage_.end;
       next += step) {
    if (layer_at(next).parameters == 0) continue;
    // Only layers that learn are gathered for their backward.
    if (!backwards || stage_.learns(next))
      if (!values_.contains(next))
        values_[next] = buffers_.allocate(layer_bytes(next));
    return;
  }
}

std::vector<Memory> MicroBatch::backward(std::vector<Memory> sent) {
  sent_gradients_ = std::move(sent);
  num_missing_ = graph_.parameter_nodes();
  graph_.run_backward([this](int64_t layer) { after_parameters(layer); },
                      before_layer);
  // Maps without a gradient get zeros, which are sent.
  const std::vector<int> layers = stage_.received();
  for (size_t i = 0; i < layers.size(); ++i)
    if (received_gradients_[i] == nullptr)
      received_gradients_[i] = buffers_.allocate(map_bytes(layers[i]));
  return std::move(received_gradients_);
}

void MicroBatch::after_parameters(int64_t layer) {
  if (stage_.zero_stage < 2) return;
  if (!gradients_.contains(layer))
    gradients_[layer] = buffers_.allocate(layer_bytes(layer));
  if (--num_missing_.at(layer) > 0) return;
  values_.erase(layer);
  gradients_.erase(layer);
}

namespace {

constexpr std::array kPolicies = {
    plan::ActivationPolicy::kKeep, plan::ActivationPolicy::kLean,
    plan::ActivationPolicy::kRecompute, plan::ActivationPolicy::kOffload};

class Walk {
 public:
  Walk(const SimulatedStage& stage, const MicroBatchShape& shape,
       const LossShape& loss)
      : stage_(stage),
        micro_batch_(buffers_, stage, shape, loss),
        peaks_(stage.layers.size(), 0) {
    micro_batch_.before_layer = [this](int64_t layer) { begin_layer(layer); };
  }

  std::vector<LayerMemory> run() {
    buffers_.set_layer(stage_.begin);
    std::vector<Memory> received, gradients;
    for (const int layer : stage_.received())
      received.push_back(buffers_.allocate(micro_batch_.map_bytes(layer)));
    std::vector<Memory> sent = micro_batch_.forward(std::move(received));
    end_layer();
    sent.clear();
    std::vector<int64_t> kept(stage_.layers.size(), 0);
    for (int64_t layer = stage_.begin; layer < stage_.end; ++layer)
      kept[static_cast<size_t>(layer)] = buffers_.live_bytes_of(layer);

    buffers_.set_layer(stage_.end - 1);
    for (const int layer : stage_.sent())
      gradients.push_back(buffers_.allocate(micro_batch_.map_bytes(layer)));
    buffers_.reset_peak();
    micro_batch_.backward(std::move(gradients));
    end_layer();

    std::vector<LayerMemory> costs;
    int64_t before = 0;
    for (int64_t layer = stage_.begin; layer < stage_.end; ++layer) {
      const auto at = static_cast<size_t>(layer);
      costs.push_back({kept[at], std::max(peaks_[at] - before, kept[at])});
      before += kept[at];
    }
    return costs;
  }

 private:
  void begin_layer(int64_t layer) {
    end_layer();
    layer_ = layer;
  }
  void end_layer() {
    if (layer_ >= 0) {
      int64_t& peak = peaks_[static_cast<size_t>(layer_)];
      peak = std::max(peak, buffers_.peak_bytes());
    }
    buffers_.reset_peak();
  }

  const SimulatedStage& stage_;
  LiveBuffers buffers_;
  MicroBatch micro_batch_;
  int64_t layer_ = -1;
  // by layer: peak of the live bytes of all layers
  std::vector<int64_t> peaks_;
};

}  // namespace

std::vector<LayerMemory> layer_memory(const SimulatedStage& stage,
                                      const MicroBatchShape& shape,
                                      const LossShape& loss) {
  return Walk(stage, shape, loss).run();
}

std::vector<MemoryByPolicy> layer_memory_by_policy(SimulatedStage stage,
                                                   const MicroBatchShape& shape,
                                                   const LossShape& loss) {
  std::vector<MemoryByPolicy> result(
      static_cast<size_t>(stage.end - stage.begin));
  for (const plan::ActivationPolicy policy : kPolicies) {
    stage.policies.assign(stage.layers.size(), policy);
    const std::vector<LayerMemory> costs = layer_memory(stage, shape, loss);
    for (size_t layer = 0; layer < costs.size(); ++layer)
      result[layer][static_cast<size_t>(policy)] = costs[layer];
  }
  return result;
}

}  // namespace headroom::predict
