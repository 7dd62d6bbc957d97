#include "worker/kernels/cpu/device_batch_norm.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include <string>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::kernels {
namespace {

std::vector<MapGroup> groups_of(const GroupedBatchNorm& norm,
                                const at::Tensor& y) {
  std::vector<MapGroup> groups;
  for (size_t g = 0; g < norm.groups.size(); ++g) {
    groups.push_back({norm.groups[g].local_end, values_per_channel(norm, g, y),
                      norm.groups[g].counts_here});
  }
  return groups;
}

// Returns an uninitialised tensor of shape [groups, 2, C].
at::Tensor empty_values(const at::Tensor& y, size_t groups) {
  return at::empty({static_cast<int64_t>(groups), 2, y.size(1)},
                   at::TensorOptions(y.device()).dtype(at::kDouble));
}

// Values per channel, in the type that the kernels expect.
at::Tensor affine(const at::Tensor& values, const at::Tensor& y) {
  return values.to(y.scalar_type() == at::kDouble ? at::kDouble : at::kFloat)
      .contiguous();
}

}  // namespace

at::Tensor device_batch_statistics(DeviceKernels& kernels, const at::Tensor& y,
                                   const GroupedBatchNorm& norm, double epsilon,
                                   const at::Tensor& batch_norm_sums) {
  const std::vector<MapGroup> groups = groups_of(norm, y);
  for (const MapGroup& group : groups) {
    HEADROOM_CHECK(
        group.values > 1,
        cat("a batch-norm group needs two values per channel, but has ",
            group.values));
  }
  const StatisticsResult result = {empty_values(y, groups.size()),
                                   batch_norm_sums};
  if (norm.exchange == nullptr) {
    kernels.batch_statistics(y, groups, epsilon, result);
    return result.statistics;
  }
  const at::Tensor sums = empty_values(y, groups.size());
  kernels.channel_sums(y, groups, sums);
  norm.exchange->sum_tensor(sums);
  kernels.statistics_of_sums(sums, groups, epsilon, result);
  return result.statistics;
}

at::Tensor device_normalise_and_activate(DeviceKernels& kernels,
                                         const at::Tensor& y,
                                         const at::Tensor& statistics,
                                         const at::Tensor& norm_weight,
                                         const at::Tensor& norm_bias,
                                         const GroupedBatchNorm& norm) {
  const std::vector<MapGroup> groups = groups_of(norm, y);
  at::Tensor out = at::empty_like(y);
  kernels.normalise_and_activate({y, groups, statistics, affine(norm_weight, y),
                                  affine(norm_bias, y), norm.activation},
                                 out);
  return out;
}

GroupedBatchNormGradients device_batch_norm_gradients(
    DeviceKernels& kernels, at::Tensor dout, const at::Tensor& y,
    const at::Tensor& statistics, const at::Tensor& norm_weight,
    const at::Tensor& norm_bias, const GroupedBatchNorm& norm,
    const AffineGradients& added_to) {
  const std::vector<MapGroup> groups = groups_of(norm, y);
  const NormedMap map = {y,
                         groups,
                         statistics,
                         affine(norm_weight, y),
                         affine(norm_bias, y),
                         norm.activation};
  GradientBuffers gradient(std::move(dout));
  GradientSumsResult result;
  result.adds_gradients = added_to.weight.defined();
  result.weight_gradient =
      result.adds_gradients ? added_to.weight : at::empty_like(map.weight);
  result.bias_gradient =
      result.adds_gradients ? added_to.bias : at::empty_like(map.bias);
  if (groups.empty() && !result.adds_gradients) {  // no samples on this rank
    result.weight_gradient.zero_();
    result.bias_gradient.zero_();
  }
  const bool exchanges = norm.exchange != nullptr && !norm.fixed_statistics;
  if (!norm.fixed_statistics) {
    (exchanges ? result.sums : result.means) = empty_values(y, groups.size());
  }
  kernels.activation_gradient_sums(map, gradient.source, result);
  if (exchanges) {
    norm.exchange->sum_tensor(result.sums);
    result.means = result.sums;
    kernels.means_of_sums(result.sums, groups, result.means);
  }
  kernels.norm_gradient(map, gradient.source, result.means, gradient.target);
  if (result.adds_gradients) return {gradient.target, {}, {}};
  return {gradient.target, result.weight_gradient.to(norm_weight.scalar_type()),
          result.bias_gradient.to(norm_bias.scalar_type())};
}

}  // namespace headroom::kernels
