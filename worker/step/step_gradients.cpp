#include "worker/step/step_gradients.h"

#include <ATen/ops/add.h>
#include <ATen/ops/ones.h>

#include <utility>

namespace headroom::step {
namespace {

std::vector<zero::ShardedLayers::Layer> sharded_layers(
    const data_parallel::FlatBuffer& parameters, bool shards_values) {
  std::vector<zero::ShardedLayers::Layer> layers;
  for (size_t i = 0; i < parameters.layers().size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    const data_parallel::FlatBuffer::Layer& place = parameters.layers()[i];
    zero::ShardedLayers::Layer layer;
    if (shards_values) layer.values = parameters.layer_values(index);
    layer.gradients.gradients = parameters.layer_gradients(index);
    for (int64_t slot = place.first_slot; slot < place.last_slot; ++slot) {
      if (!parameters.entry(slot).requires_grad()) continue;
      layer.gradients.parameters.push_back(parameters.entry(slot));
    }
    layers.push_back(std::move(layer));
  }
  return layers;
}

}  // namespace

void release_failed_graph() {
  const at::Tensor leaf = at::ones({1}).requires_grad_();
  leaf.add(0).backward();
}

StepGradients::StepGradients(data_parallel::FlatBuffer& parameters,
                             const zero::ShardMap& shards, const Slices& slices,
                             collectives::Mesh* mesh)
    : parameters_(parameters),
      alone_(collectives::make_single_communicator()),
      replicas_(mesh == nullptr ? *alone_ : *mesh->replicas) {
  if (!slices.gradients) {
    reducer_ =
        std::make_unique<data_parallel::GradientReducer>(parameters, replicas_);
  } else {
    sharded_ = std::make_unique<zero::ShardedLayers>(
        shards, sharded_layers(parameters, slices.weights), *mesh->data,
        *mesh->spatial);
  }
}

void StepGradients::begin_step() {
  if (sharded_) {
    sharded_->begin_step();
  } else {
    parameters_.zero_gradients();
  }
}

void StepGradients::begin_forward() {
  if (sharded_) sharded_->begin_forward();
}

void StepGradients::begin_micro_batch(bool is_last) {
  if (sharded_) {
    sharded_->begin_backward();
  } else {
    reducer_->begin(is_last);
  }
}

void StepGradients::reduce(std::span<at::Tensor> extra) {
  for (const at::Tensor& tensor : extra) replicas_.all_reduce(tensor);
}

void StepGradients::finish(std::span<at::Tensor> extra) {
  if (reducer_) {
    reducer_->finish(extra);
  } else {
    reduce(extra);
  }
}

void StepGradients::abandon() {
  if (reducer_) reducer_->abandon();
  if (sharded_) sharded_->abandon();
}

}  // namespace headroom::step
