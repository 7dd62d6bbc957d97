#include "tests/parallel/pipeline/toy_stage.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/rand.h>

#include <algorithm>
#include <utility>

namespace headroom::pipeline {
namespace {

constexpr int64_t kChannels = 3, kHeight = 4, kWidth = 5;

// `input(k)` returns the k-th input of the layer.
template <typename Input>
at::Tensor toy_layer(const at::Tensor& weight, size_t num_inputs,
                     const Input& input) {
  at::Tensor sum = input(0);
  for (size_t k = 1; k < num_inputs; ++k)
    sum = sum + input(k) * static_cast<double>(k + 1);
  return (sum * weight.view({1, kChannels, 1, 1})).tanh();
}

at::Tensor toy_loss(const at::Tensor& map) {
  const at::Tensor cells =
      at::arange(kHeight * kWidth, at::kDouble).view({1, 1, kHeight, kWidth});
  return (map * cells).sum();
}

at::Tensor random_tensor(uint32_t seed, at::IntArrayRef sizes) {
  return at::rand(sizes, at::detail::createCPUGenerator(seed), at::kDouble) -
         0.5;
}

}  // namespace

ToyBatch toy_batch(uint32_t seed, int64_t num_micro_batches,
                   bool with_empty_ones) {
  ToyBatch batch;
  for (int64_t i = 0; i < num_micro_batches; ++i)
    batch.images.push_back(random_tensor(seed + static_cast<uint32_t>(i),
                                         {with_empty_ones ? i % 3 : 1 + i % 3,
                                          kChannels, kHeight, kWidth})
                               .contiguous(at::MemoryFormat::ChannelsLast));
  return batch;
}

std::vector<at::Tensor> toy_weights(uint32_t seed, size_t num_layers) {
  std::vector<at::Tensor> weights;
  for (size_t layer = 0; layer < num_layers; ++layer)
    weights.push_back(
        random_tensor(1000 * seed + static_cast<uint32_t>(layer), {kChannels})
            .add_(1)
            .set_requires_grad(true));
  return weights;
}

std::vector<at::Tensor> undivided_gradients(const RandomPipeline& pipeline,
                                            const ToyBatch& batch,
                                            std::vector<at::Tensor> weights) {
  for (const at::Tensor& images : batch.images) {
    std::vector<at::Tensor> maps;
    for (size_t layer = 0; layer < weights.size(); ++layer)
      maps.push_back(toy_layer(
          weights[layer], pipeline.inputs[layer].size(), [&](size_t k) {
            const int from = pipeline.inputs[layer][k];
            return from < 0 ? images : maps[static_cast<size_t>(from)];
          }));
    toy_loss(maps.back()).backward();
  }
  std::vector<at::Tensor> gradients;
  for (const at::Tensor& weight : weights) gradients.push_back(weight.grad());
  return gradients;
}

ToyStage::ToyStage(const RandomPipeline& pipeline, int stage,
                   const ToyBatch& batch, std::vector<at::Tensor> weights)
    : pipeline_(pipeline),
      batch_(batch),
      weights_(std::move(weights)),
      routes_(skip_routes(pipeline.inputs, pipeline.stage_begins)
                  .at(static_cast<size_t>(stage))) {
  const auto index = static_cast<size_t>(stage);
  begin_ = pipeline.stage_begins[index];
  end_ = index + 1 < pipeline.stage_begins.size()
             ? pipeline.stage_begins[index + 1]
             : static_cast<int>(pipeline.inputs.size());
}

std::vector<at::Tensor> ToyStage::forward(int64_t micro_batch,
                                          std::vector<at::Tensor> received) {
  std::map<int, at::Tensor> maps;
  for (size_t i = 0; i < received.size(); ++i)
    maps[routes_.received[i].layer] = received[i];
  maps[-1] = batch_.images[static_cast<size_t>(micro_batch)];
  for (int layer = begin_; layer < end_; ++layer) {
    const std::vector<int>& inputs =
        pipeline_.inputs[static_cast<size_t>(layer)];
    maps[layer] = toy_layer(weights_[static_cast<size_t>(layer)], inputs.size(),
                            [&](size_t k) { return maps.at(inputs[k]); });
    if (layer > begin_) continue;
    // This probe has no effect on values, and exists as long as the graph that
    // saved it.
    const at::Tensor probe = maps.at(layer) * 1.0;
    maps[layer] = maps.at(layer) + probe * probe * 0.0;
    saved_.insert_or_assign(micro_batch, probe.storage().getWeakStorageImpl());
  }
  most_alive = std::max(most_alive, num_alive());
  if (end_ == static_cast<int>(pipeline_.inputs.size()))
    return {toy_loss(maps.at(end_ - 1))};
  std::vector<at::Tensor> sent;
  for (const SentMap& map : routes_.sent) sent.push_back(maps.at(map.layer));
  return sent;
}

std::vector<int64_t> ToyStage::map_sizes(int64_t micro_batch, int) {
  return batch_.images[static_cast<size_t>(micro_batch)].sizes().vec();
}

void ToyStage::before_backward(int64_t, bool is_last) {
  last_flags.push_back(is_last);
}

int64_t ToyStage::num_alive() {
  return std::count_if(saved_.begin(), saved_.end(), [](const auto& entry) {
    return !entry.second.expired();
  });
}

}  // namespace headroom::pipeline
