// Shared by the tests of conv_block: random cases and the same block built of
// ATen's operators.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/mish.h>
#include <ATen/ops/rand.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>

#include <algorithm>
#include <cstdint>
#include <vector>

#include "worker/model/conv_block.h"

namespace headroom::model {

struct BlockCase {
  int64_t channels_in = 3;
  int64_t channels_out = 16;
  int64_t kernel = 3;
  int64_t stride = 1;
  int64_t padding = 1;
  int64_t height = 7;
  int64_t width = 5;
  std::vector<int64_t> group_sizes = {2};
  at::ScalarType scalar_type = at::kDouble;
  int64_t groups = 1;  // the number of channel groups
  layers::ActivationFunction activation = {};
};

// The block's inputs and the weights of its outputs in the loss.
struct BlockTensors {
  at::Tensor x, weight, norm_weight, norm_bias, running_mean, running_var;
  at::Tensor dout;

  std::vector<at::Tensor> leaves() const {
    return {x, weight, norm_weight, norm_bias};
  }
};

inline int64_t num_samples(const BlockCase& block) {
  int64_t total = 0;
  for (int64_t size : block.group_sizes) total += size;
  return total;
}

inline int64_t output_extent(const BlockCase& block, int64_t input) {
  return (input + 2 * block.padding - block.kernel) / block.stride + 1;
}

inline at::Tensor leaf(const at::Tensor& values) {
  return values.detach().clone(at::MemoryFormat::Preserve).requires_grad_();
}

inline BlockTensors random_tensors(const BlockCase& block, uint64_t seed) {
  at::manual_seed(seed);
  const auto options = at::TensorOptions(block.scalar_type);
  const auto channels_last = at::MemoryFormat::ChannelsLast;
  const int64_t n = num_samples(block), c = block.channels_out;
  BlockTensors t;
  t.x =
      leaf(at::randn({n, block.channels_in, block.height, block.width}, options)
               .contiguous(channels_last));
  t.weight = leaf(at::randn({c, block.channels_in / block.groups, block.kernel,
                             block.kernel},
                            options)
                      .contiguous(channels_last));
  t.norm_weight = leaf(at::rand({c}, options) + 0.5);
  t.norm_bias = leaf(at::randn({c}, options));
  t.running_mean = at::randn({c}, options);
  t.running_var = at::rand({c}, options) + 0.5;
  t.dout = at::randn({n, c, output_extent(block, block.height),
                      output_extent(block, block.width)},
                     options)
               .contiguous(channels_last);
  return t;
}

inline ConvBlockArguments arguments_of(const BlockCase& block,
                                       const BlockTensors& t) {
  ConvBlockArguments arguments;
  arguments.x = t.x;
  arguments.weight = t.weight;
  arguments.norm_weight = t.norm_weight;
  arguments.norm_bias = t.norm_bias;
  arguments.running_mean = t.running_mean;
  arguments.running_var = t.running_var;
  arguments.stride = block.stride;
  arguments.padding = block.padding;
  arguments.groups = block.groups;
  arguments.activation = block.activation;
  return arguments;
}

inline StepContext training_context(const BlockCase& block) {
  StepContext context;
  context.training = true;
  int64_t begin = 0;
  for (int64_t size : block.group_sizes) {
    context.groups.push_back({begin, begin + size, size, true});
    begin += size;
  }
  return context;
}

inline at::Tensor reference_activation(
    const at::Tensor& z, const layers::ActivationFunction& function) {
  switch (function.kind) {
    case layers::ActivationKind::kSilu:
      return at::silu(z);
    case layers::ActivationKind::kLeaky:
      return at::leaky_relu(z, function.slope);
    case layers::ActivationKind::kHardswish:
      return at::hardswish(z);
    case layers::ActivationKind::kMish:
      return at::mish(z);
  }
  return {};
}

// The same block, built of ATen's operators, group by group.
inline at::Tensor reference_block(const BlockCase& block,
                                  const BlockTensors& t) {
  const at::Tensor y = at::conv2d(t.x, t.weight, {}, block.stride,
                                  block.padding, 1, block.groups);
  std::vector<at::Tensor> groups;
  int64_t begin = 0;
  for (int64_t size : block.group_sizes) {
    groups.push_back(reference_activation(
        at::batch_norm(y.slice(0, begin, begin + size), t.norm_weight,
                       t.norm_bias, {}, {}, true, kBatchNormMomentum,
                       kBatchNormEpsilon, false),
        block.activation));
    begin += size;
  }
  return at::cat(groups);
}

// Largest difference, relative to the largest expected value.
inline double relative_error(const at::Tensor& actual,
                             const at::Tensor& expected) {
  if (!actual.defined() || actual.sizes() != expected.sizes()) return INFINITY;
  if (expected.numel() == 0) return 0;
  const double scale = std::max(expected.abs().max().item().toDouble(), 1e-30);
  return (actual.to(at::kDouble) - expected.to(at::kDouble))
             .abs()
             .max()
             .item()
             .toDouble() /
         scale;
}

// Copies the leaves, without their autograd history, to another type.
inline BlockTensors copied(const BlockTensors& t, at::ScalarType type) {
  BlockTensors copy;
  copy.x = leaf(t.x.to(type));
  copy.weight = leaf(t.weight.to(type));
  copy.norm_weight = leaf(t.norm_weight.to(type));
  copy.norm_bias = leaf(t.norm_bias.to(type));
  copy.running_mean = t.running_mean.to(type);
  copy.running_var = t.running_var.to(type);
  copy.dout = t.dout.to(type);
  return copy;
}

}  // namespace headroom::model
