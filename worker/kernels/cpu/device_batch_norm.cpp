#include "worker/kernels/cpu/device_batch_norm.h"

#include <ATen/ops/clamp_min.h>
#include <ATen/ops/div.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/sub.h>
#include <ATen/ops/zeros_like.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/check.h"

namespace headroom::kernels {
namespace {

struct Registration {
  c10::DeviceType type = c10::DeviceType::CUDA;
  MapKernels* kernels = nullptr;
};

Registration& registration() {
  static Registration registered;
  return registered;
}

std::vector<int64_t> begins_of(const GroupedBatchNorm& norm) {
  std::vector<int64_t> begins = {0};
  for (const BatchNormGroup& group : norm.groups) {
    begins.push_back(group.local_end);
  }
  return begins;
}

at::Tensor empty_sums(const at::Tensor& y, size_t groups) {
  return at::empty({static_cast<int64_t>(groups), 2, y.size(1)},
                   at::TensorOptions(y.device()).dtype(at::kDouble));
}

// Per-channel values in the type that the kernels take.
at::Tensor affine(const at::Tensor& values, const at::Tensor& y) {
  return values.to(y.scalar_type() == at::kDouble ? at::kDouble : at::kFloat)
      .contiguous();
}

void exchange_sums(StatisticsExchange& exchange, const at::Tensor& sums) {
  at::Tensor host = sums.cpu();
  exchange.sum(
      {host.mutable_data_ptr<double>(), static_cast<size_t>(host.numel())});
  if (!sums.is_same(host)) sums.copy_(host);
}

// Per group, beside the map: [groups, 1].
at::Tensor on_device(std::vector<double> values, const at::Tensor& y) {
  return at::from_blob(values.data(), {static_cast<int64_t>(values.size()), 1},
                       at::kDouble)
      .clone()
      .to(y.device(), at::kDouble, /*non_blocking=*/false);
}

std::vector<double> counts_of(const GroupedBatchNorm& norm,
                              const at::Tensor& y) {
  std::vector<double> counts;
  for (size_t g = 0; g < norm.groups.size(); ++g) {
    counts.push_back(values_per_channel(norm, g, y));
  }
  return counts;
}

// The groups' numbers, as one where they are equal: a number travels with an
// operator, a tensor is copied to the device.
bool all_equal(const std::vector<double>& values) {
  return std::ranges::adjacent_find(values, std::ranges::not_equal_to()) ==
         values.end();
}

at::Tensor divided(const at::Tensor& rows, const std::vector<double>& by,
                   const at::Tensor& y) {
  return all_equal(by) ? at::div(rows, by.front())
                       : at::div(rows, on_device(by, y));
}

at::Tensor multiplied(const at::Tensor& rows, const std::vector<double>& by,
                      const at::Tensor& y) {
  return all_equal(by) ? at::mul(rows, by.front())
                       : at::mul(rows, on_device(by, y));
}

}  // namespace

void set_map_kernels(c10::DeviceType type, MapKernels* kernels) {
  registration() = {type, kernels};
}

MapKernels* map_kernels_for(const at::Tensor& map) {
  const Registration& registered = registration();
  if (registered.kernels != nullptr && map.device().type() == registered.type) {
    return registered.kernels;
  }
  if (map.is_cpu()) return nullptr;
  throw Error(
      "device",
      "a map is on " + map.device().str() + ", for which no kernels are loaded",
      "use --device cpu");
}

at::Tensor device_batch_statistics(MapKernels& kernels, const at::Tensor& y,
                                   const GroupedBatchNorm& norm, double epsilon,
                                   const at::Tensor& batch_norm_sums) {
  const at::Tensor sums = empty_sums(y, norm.groups.size());
  kernels.channel_sums(y, begins_of(norm), sums);
  if (norm.exchange != nullptr) exchange_sums(*norm.exchange, sums);

  const std::vector<double> counts = counts_of(norm, y);
  for (const double n : counts) {
    HEADROOM_CHECK(n > 1,
                   "a batch-norm group needs two values per channel, but has " +
                       std::to_string(n));
  }
  const at::Tensor mean = divided(sums.select(1, 0), counts, y);
  // Rounding may leave a constant channel slightly below zero; a NaN stays one.
  const at::Tensor centred = at::clamp_min(
      at::sub(sums.select(1, 1), multiplied(at::mul(mean, mean), counts, y)),
      0);
  if (batch_norm_sums.defined()) {
    const int64_t channels = y.size(1);
    std::vector<double> less_one = counts;
    for (double& n : less_one) --n;
    const at::Tensor unbiased = divided(centred, less_one, y);
    for (size_t g = 0; g < norm.groups.size(); ++g) {
      if (!norm.groups[g].counts_here) continue;
      const auto row = static_cast<int64_t>(g);
      batch_norm_sums.narrow(0, 0, channels).add_(mean.select(0, row));
      batch_norm_sums.narrow(0, channels, channels)
          .add_(unbiased.select(0, row));
    }
  }
  return at::stack({mean, at::rsqrt(divided(centred, counts, y).add_(epsilon))},
                   1);
}

at::Tensor device_normalise_and_activate(MapKernels& kernels,
                                         const at::Tensor& y,
                                         const at::Tensor& statistics,
                                         const at::Tensor& norm_weight,
                                         const at::Tensor& norm_bias,
                                         const GroupedBatchNorm& norm) {
  at::Tensor out = at::empty_like(y);
  kernels.normalise_and_activate(y, begins_of(norm), statistics,
                                 affine(norm_weight, y), affine(norm_bias, y),
                                 norm.activation, out);
  return out;
}

GroupedBatchNormGradients device_batch_norm_gradients(
    MapKernels& kernels, at::Tensor dout, const at::Tensor& y,
    const at::Tensor& statistics, const at::Tensor& norm_weight,
    const at::Tensor& norm_bias, const GroupedBatchNorm& norm) {
  const std::vector<int64_t> begins = begins_of(norm);
  const at::Tensor weight = affine(norm_weight, y);
  const at::Tensor bias = affine(norm_bias, y);
  GradientBuffers gradient(std::move(dout));
  at::Tensor sums = empty_sums(y, norm.groups.size());
  kernels.activation_gradient_sums(y, gradient.source, begins, statistics,
                                   weight, bias, norm.activation, sums);
  const at::Tensor total = sums.sum(0);

  at::Tensor means;
  if (norm.fixed_statistics) {
    means = at::zeros_like(sums);
  } else {
    if (norm.exchange != nullptr) exchange_sums(*norm.exchange, sums);
    const std::vector<double> counts = counts_of(norm, y);
    means = all_equal(counts)
                ? at::div(sums, counts.front())
                : at::div(sums, on_device(counts, y).unsqueeze(2));
  }
  kernels.norm_gradient(y, gradient.source, begins, statistics, weight, bias,
                        norm.activation, means, gradient.target);
  return {gradient.target, total.select(0, 1).to(norm_weight.scalar_type()),
          total.select(0, 0).to(norm_bias.scalar_type())};
}

}  // namespace headroom::kernels
