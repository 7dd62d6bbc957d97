// A chain of small dense layers that is used like a sharded model: acquire a
// layer, compute with it, release it, and acquire it again in backward.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cos.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/sin.h>
#include <ATen/ops/tanh.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <string>
#include <vector>

#include "parallel/data_parallel/flat_buffer.h"
#include "parallel/zero/sharded_layers.h"

namespace headroom::zero {

inline constexpr int kLayers = 5;
// No multiple of the alignment or of the number of ranks.
inline constexpr int64_t kWidth = 13;

// The identity function. Its backward gathers the weights of the layer again.
struct UseAgain : torch::autograd::Function<UseAgain> {
  static at::Tensor forward(torch::autograd::AutogradContext* context,
                            const at::Tensor& x, ShardedLayers* layers,
                            int64_t layer) {
    context->saved_data["layers"] = reinterpret_cast<int64_t>(layers);
    context->saved_data["layer"] = layer;
    return x;
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      torch::autograd::variable_list gradients) {
    reinterpret_cast<ShardedLayers*>(context->saved_data["layers"].toInt())
        ->use(context->saved_data["layer"].toInt());
    return {gradients[0], at::Tensor(), at::Tensor()};
  }
};

struct LocalFailure {};

// The identity function, whose backward throws LocalFailure.
struct FailInBackward : torch::autograd::Function<FailInBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext*,
                            const at::Tensor& x) {
    return x;
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext*, torch::autograd::variable_list) {
    throw LocalFailure();
  }
};

struct LayeredNetwork {
  std::vector<at::Tensor> weights, biases;
  std::unique_ptr<data_parallel::FlatBuffer> flat_buffer;
  std::unique_ptr<ShardMap> map;
  std::unique_ptr<ShardedLayers> layers;

  // Without `ranks` the network is undivided, else it is sharded over them with
  // ZeRO 2 or 3. The first `frozen` layers are not trained.
  explicit LayeredNetwork(collectives::Communicator* ranks = nullptr,
                          int zero_stage = 0,
                          collectives::Communicator* copies = nullptr,
                          int frozen = 0) {
    data_parallel::FlatBufferOptions options;
    options.scalar_type = at::kDouble;
    options.with_gradients = true;
    options.layer_parts = ranks == nullptr ? 1 : ranks->size();
    options.values_apart = zero_stage == 3;
    options.gradients_apart = zero_stage >= 2;
    for (int i = 0; i < kLayers; ++i) {
      const at::Tensor index =
          at::arange(kWidth * kWidth, at::kDouble) * (i + 1);
      weights.push_back(at::sin(index).view({kWidth, kWidth}) / 3);
      biases.push_back(at::cos(at::arange(kWidth, at::kDouble) + i));
    }
    std::vector<data_parallel::FlatBufferEntry> entries;
    for (int i = 0; i < kLayers; ++i) {
      entries.push_back({"weight " + std::to_string(i), &weights[i], i});
      entries.push_back({"bias " + std::to_string(i), &biases[i], i});
    }
    flat_buffer = std::make_unique<data_parallel::FlatBuffer>(
        std::move(entries), options);
    for (int i = 0; i < frozen; ++i) {
      weights[i].set_requires_grad(false);
      biases[i].set_requires_grad(false);
    }
    std::vector<int64_t> sizes;
    for (const data_parallel::FlatBuffer::Layer& layer : flat_buffer->layers())
      sizes.push_back(layer.size);
    map = std::make_unique<ShardMap>(sizes, options.layer_parts, 8);
    if (zero_stage < 2) return;
    std::vector<ShardedLayers::Layer> sharded;
    for (int i = 0; i < kLayers; ++i) {
      ShardedLayers::Layer layer;
      if (zero_stage == 3) layer.values = flat_buffer->layer_values(i);
      layer.gradients.gradients = flat_buffer->layer_gradients(i);
      if (i >= frozen) layer.gradients.parameters = {weights[i], biases[i]};
      sharded.push_back(std::move(layer));
    }
    single = collectives::make_single_communicator();
    layers = std::make_unique<ShardedLayers>(*map, std::move(sharded), *ranks,
                                             copies ? *copies : *single);
  }

  // Throws in forward of layer `fails_forward`, or when backward leaves layer
  // `fails_backward`.
  at::Tensor loss(const at::Tensor& input, int fails_forward = -1,
                  int fails_backward = -1) {
    at::Tensor x = input;
    if (layers) layers->begin_forward();
    for (int i = 0; i < kLayers; ++i) {
      if (layers) layers->use(i);
      if (i == fails_forward) throw LocalFailure();
      if (i == fails_backward) x = FailInBackward::apply(x);
      x = at::tanh(at::matmul(x, weights[i]) + biases[i]);
      if (layers) layers->done_with(i);
      if (layers && x.requires_grad()) x = UseAgain::apply(x, layers.get(), i);
    }
    return at::mul(x, x).sum();
  }

  void train(const at::Tensor& input) {
    const at::Tensor value = loss(input);
    if (layers) layers->begin_backward();
    value.backward();
  }

  std::unique_ptr<collectives::Communicator> single;
};

// Samples [begin, end) of the global batch; there may be none.
inline at::Tensor network_input(int64_t begin, int64_t end) {
  return at::sin(at::arange(begin * kWidth, end * kWidth, at::kDouble) * 0.37)
      .view({end - begin, kWidth});
}

}  // namespace headroom::zero
