#include "worker/step/step_gradients.h"

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

StepGradients::StepGradients(data_parallel::FlatBuffer& parameters,
                             const zero::ShardMap& shards, int zero_stage,
                             collectives::Mesh* mesh)
    : parameters_(parameters),
      alone_(collectives::make_single_communicator()),
      replicas_(mesh == nullptr ? *alone_ : *mesh->replicas) {
  if (zero_stage < 2) {
    reducer_ =
        std::make_unique<data_parallel::GradientReducer>(parameters, replicas_);
  } else {
    sharded_ = std::make_unique<zero::ShardedLayers>(
        shards, sharded_layers(parameters, zero_stage == 3), *mesh->data,
        *mesh->spatial);
  }
}

void StepGradients::begin_step() {
  failed_ = false;
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
  } else if (!failed_) {
    reducer_->begin(is_last);
  }
}

void StepGradients::complete_pass() {
  failed_ = true;
  if (sharded_) sharded_->complete_pass();
}

std::vector<int64_t> StepGradients::collective_layers() const {
  std::vector<int64_t> layers;
  for (const zero::LayerCollective& collective : sharded_->cursor().list()) {
    layers.push_back(
        parameters_.layers()[static_cast<size_t>(collective.layer)].number);
  }
  return layers;
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

void StepGradients::complete_with_zeros(std::span<at::Tensor> extra) {
  if (reducer_) {
    reducer_->complete_with_zeros(extra);
    return;
  }
  for (at::Tensor& tensor : extra) tensor.zero_();
  reduce(extra);
}

}  // namespace headroom::step
