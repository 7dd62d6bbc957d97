#include "worker/kernels/cpu/grouped_batch_norm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/rsqrt.h>
#include <ATen/ops/stack.h>

#include <cmath>
#include <span>
#include <string>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "worker/kernels/cpu/batch_norm_passes.h"
#include "worker/kernels/cpu/device_batch_norm.h"
#include "worker/kernels/cpu/kernel_registration.h"

namespace headroom::kernels {
namespace {

// For each group, two rows that have one value per channel.
template <typename T>
class GroupRows {
 public:
  GroupRows(T* values, int64_t channels)
      : values_(values), channels_(static_cast<size_t>(channels)) {}
  std::span<T> first(size_t group) const { return row(2 * group); }
  std::span<T> second(size_t group) const { return row(2 * group + 1); }

 private:
  std::span<T> row(size_t index) const {
    return {values_ + index * channels_, channels_};
  }
  T* values_;
  size_t channels_;
};

// Two sums per channel and group, in the order of the exchange.
class GroupSums {
 public:
  GroupSums(size_t num_groups, int64_t channels)
      : values_(2 * num_groups * channels), channels_(channels) {}
  std::span<double> first(size_t group) { return rows().first(group); }
  std::span<double> second(size_t group) { return rows().second(group); }
  std::span<double> all() { return values_; }

 private:
  GroupRows<double> rows() { return {values_.data(), channels_}; }
  std::vector<double> values_;
  int64_t channels_;
};

// Calls body with a zero of the tensor's element type.
template <typename Body>
void with_element_type(const at::Tensor& tensor, const Body& body) {
  switch (tensor.scalar_type()) {
    case at::kFloat:
      return body(float{});
    case at::kDouble:
      return body(double{});
    case at::kBFloat16:
      return body(c10::BFloat16{});
    case at::kHalf:
      return body(c10::Half{});
    default:
      HEADROOM_CHECK(false, std::string("batch norm of ") +
                                c10::toString(tensor.scalar_type()));
  }
}

// Convert a parameter to doubles, and doubles back to the type of its gradient.
// These are plain loops, because an ATen conversion costs more than these few
// values.
std::vector<double> to_doubles(const at::Tensor& tensor) {
  std::vector<double> values(tensor.numel());
  with_element_type(tensor, [&](auto zero) {
    const auto* data = tensor.const_data_ptr<decltype(zero)>();
    const int64_t stride = tensor.stride(0);
    for (size_t i = 0; i < values.size(); ++i) values[i] = data[i * stride];
  });
  return values;
}

at::Tensor from_doubles(std::span<const double> values,
                        const at::Tensor& like) {
  at::Tensor tensor =
      at::empty({static_cast<int64_t>(values.size())}, like.options());
  with_element_type(tensor, [&](auto zero) {
    auto* data = tensor.data_ptr<decltype(zero)>();
    for (size_t i = 0; i < values.size(); ++i)
      data[i] = static_cast<decltype(zero)>(values[i]);
  });
  return tensor;
}

// The samples of one group in a channels-last map.
struct GroupPixels {
  int64_t offset;  // elements
  int64_t count;   // pixels

  GroupPixels(const BatchNormGroup& group, const at::Tensor& map) {
    const int64_t area = map.size(2) * map.size(3);
    offset = group.local_begin * area * map.size(1);
    count = (group.local_end - group.local_begin) * area;
  }
};

void check_groups(const std::vector<BatchNormGroup>& groups, int64_t samples) {
  int64_t next = 0;
  for (const BatchNormGroup& group : groups) {
    HEADROOM_CHECK(
        group.local_begin == next && group.local_end >= group.local_begin,
        cat("batch-norm group of samples [", group.local_begin, ", ",
            group.local_end, ") should begin at ", next));
    next = group.local_end;
  }
  HEADROOM_CHECK(next == samples, cat("batch-norm groups cover ", next,
                                      " samples of ", samples));
}

// The inputs of the normalisation for each group.
class GroupNorms {
 public:
  GroupNorms(const at::Tensor& statistics, const at::Tensor& norm_weight,
             const at::Tensor& norm_bias,
             const layers::ActivationFunction& activation)
      : rows_(statistics.const_data_ptr<double>(), statistics.size(2)),
        weight_(to_doubles(norm_weight)),
        bias_(to_doubles(norm_bias)),
        activation_(activation) {}

  ChannelNorm of(size_t group) const {
    return {rows_.first(group), rows_.second(group), weight_, bias_,
            activation_};
  }

 private:
  GroupRows<const double> rows_;
  std::vector<double> weight_;
  std::vector<double> bias_;
  layers::ActivationFunction activation_;
};

at::Tensor empty_statistics(size_t num_groups, int64_t channels) {
  return at::empty({static_cast<int64_t>(num_groups), 2, channels},
                   at::kDouble);
}

// Divides both sums by the group's number of values: these means are the
// statistics' contribution to every gradient of the group.
void to_group_means(const GroupedBatchNorm& norm, const at::Tensor& y,
                    GroupSums& sums) {
  if (norm.fixed_statistics) {
    for (double& value : sums.all()) value = 0;
    return;
  }
  if (norm.exchange != nullptr) norm.exchange->sum(sums.all());
  for (size_t g = 0; g < norm.groups.size(); ++g) {
    const double n = values_per_channel(norm, g, y);
    for (double& value : sums.first(g)) value /= n;
    for (double& value : sums.second(g)) value /= n;
  }
}

bool is_slice_of_pixels(const at::Tensor& map) {
  const int64_t pixel = map.stride(3), width = map.size(3);
  return map.stride(1) == 1 && pixel >= map.size(1) &&
         map.stride(2) == width * pixel &&
         map.stride(0) == map.size(2) * width * pixel;
}

}  // namespace

double values_per_channel(const GroupedBatchNorm& norm, size_t group,
                          const at::Tensor& map) {
  const int64_t rows = norm.global_rows > 0 ? norm.global_rows : map.size(2);
  return static_cast<double>(norm.groups[group].global_samples * rows *
                             map.size(3));
}

at::Tensor batch_statistics(const at::Tensor& y, const GroupedBatchNorm& norm,
                            double epsilon, const at::Tensor& batch_norm_sums) {
  check_groups(norm.groups, y.size(0));
  const int64_t channels = y.size(1);
  HEADROOM_CHECK(
      !batch_norm_sums.defined() || (batch_norm_sums.numel() == 2 * channels &&
                                     batch_norm_sums.is_contiguous()),
      cat("sums of another map than one of ", channels, " channels"));
  if (DeviceKernels* const kernels = device_kernels_for(y)) {
    return device_batch_statistics(*kernels, y, norm, epsilon, batch_norm_sums);
  }
  double* const running = batch_norm_sums.defined()
                              ? batch_norm_sums.mutable_data_ptr<double>()
                              : nullptr;
  GroupSums sums(norm.groups.size(), channels);
  with_element_type(y, [&](auto zero) {
    using T = decltype(zero);
    for (size_t g = 0; g < norm.groups.size(); ++g) {
      const GroupPixels pixels(norm.groups[g], y);
      channel_sums(y.const_data_ptr<T>() + pixels.offset, pixels.count,
                   sums.first(g), sums.second(g));
    }
  });
  if (norm.exchange != nullptr) norm.exchange->sum(sums.all());

  at::Tensor statistics = empty_statistics(norm.groups.size(), channels);
  const GroupRows<double> rows(statistics.data_ptr<double>(), channels);
  for (size_t g = 0; g < norm.groups.size(); ++g) {
    const double n = values_per_channel(norm, g, y);
    HEADROOM_CHECK(
        n > 1,
        cat("a batch-norm group needs two values per channel, but has ", n));
    for (int64_t c = 0; c < channels; ++c) {
      const double mean = sums.first(g)[c] / n;
      const double squares = sums.second(g)[c] - n * mean * mean;
      // Rounding may make a constant channel's sum slightly negative; NaN stays
      // NaN.
      const double centred = squares < 0 ? 0 : squares;
      rows.first(g)[c] = mean;
      rows.second(g)[c] = 1 / std::sqrt(centred / n + epsilon);
      if (running != nullptr && norm.groups[g].counts_here) {
        running[c] += mean;
        running[channels + c] += centred / (n - 1);
      }
    }
  }
  return statistics;
}

at::Tensor running_statistics(const at::Tensor& running_mean,
                              const at::Tensor& running_var, double epsilon) {
  if (device_kernels_for(running_mean) != nullptr) {
    return at::stack({running_mean.to(at::kDouble),
                      at::rsqrt(running_var.to(at::kDouble) + epsilon)})
        .unsqueeze(0);
  }
  const std::vector<double> mean = to_doubles(running_mean);
  const std::vector<double> variance = to_doubles(running_var);
  const int64_t channels = running_mean.size(0);
  at::Tensor statistics = empty_statistics(1, channels);
  const GroupRows<double> rows(statistics.data_ptr<double>(), channels);
  for (int64_t c = 0; c < channels; ++c) {
    rows.first(0)[c] = mean[c];
    rows.second(0)[c] = 1 / std::sqrt(variance[c] + epsilon);
  }
  return statistics;
}

at::Tensor normalise_and_activate(const at::Tensor& y,
                                  const at::Tensor& statistics,
                                  const at::Tensor& norm_weight,
                                  const at::Tensor& norm_bias,
                                  const GroupedBatchNorm& norm) {
  if (DeviceKernels* const kernels = device_kernels_for(y)) {
    return device_normalise_and_activate(*kernels, y, statistics, norm_weight,
                                         norm_bias, norm);
  }
  at::Tensor out = at::empty_like(y);
  const GroupNorms norms(statistics, norm_weight, norm_bias, norm.activation);
  with_element_type(y, [&](auto zero) {
    using T = decltype(zero);
    for (size_t g = 0; g < norm.groups.size(); ++g) {
      const GroupPixels pixels(norm.groups[g], y);
      batch_norm_activation(y.const_data_ptr<T>() + pixels.offset,
                            out.data_ptr<T>() + pixels.offset, pixels.count,
                            norms.of(g));
    }
  });
  return out;
}

GroupedBatchNormGradients grouped_batch_norm_gradients(
    at::Tensor dout, const at::Tensor& y, const at::Tensor& statistics,
    const at::Tensor& norm_weight, const at::Tensor& norm_bias,
    const GroupedBatchNorm& norm, const AffineGradients& added_to) {
  if (DeviceKernels* const kernels = device_kernels_for(y)) {
    return device_batch_norm_gradients(*kernels, std::move(dout), y, statistics,
                                       norm_weight, norm_bias, norm, added_to);
  }
  HEADROOM_CHECK(!added_to.weight.defined(),
                 "the CPU's loops add no gradients to others");
  const int64_t channels = y.size(1);
  GradientBuffers gradient(std::move(dout));
  const GroupNorms norms(statistics, norm_weight, norm_bias, norm.activation);
  GroupSums sums(norm.groups.size(), channels);
  with_element_type(y, [&](auto zero) {
    using T = decltype(zero);
    for (size_t g = 0; g < norm.groups.size(); ++g) {
      const GroupPixels pixels(norm.groups[g], y);
      batch_norm_activation_backward(
          y.const_data_ptr<T>() + pixels.offset,
          gradient.source.const_data_ptr<T>() +
              pixels.offset / channels * gradient.pixel_stride,
          gradient.pixel_stride, gradient.target.data_ptr<T>() + pixels.offset,
          pixels.count, norms.of(g), sums.first(g), sums.second(g));
    }
  });
  gradient.source.reset();

  GroupSums total(1, channels);
  for (size_t g = 0; g < norm.groups.size(); ++g) {
    for (int64_t c = 0; c < channels; ++c) {
      total.first(0)[c] += sums.first(g)[c];
      total.second(0)[c] += sums.second(g)[c];
    }
  }
  to_group_means(norm, y, sums);
  with_element_type(y, [&](auto zero) {
    using T = decltype(zero);
    for (size_t g = 0; g < norm.groups.size(); ++g) {
      const GroupPixels pixels(norm.groups[g], y);
      batch_norm_backward(y.const_data_ptr<T>() + pixels.offset,
                          gradient.target.data_ptr<T>() + pixels.offset,
                          pixels.count, norms.of(g), sums.first(g),
                          sums.second(g));
    }
  });
  return {gradient.target, from_doubles(total.second(0), norm_weight),
          from_doubles(total.first(0), norm_bias)};
}

at::Tensor slice_of_pixels(const at::Tensor& map) {
  return is_slice_of_pixels(map)
             ? map
             : map.contiguous(at::MemoryFormat::ChannelsLast);
}

GradientBuffers::GradientBuffers(at::Tensor incoming) {
  const bool shared =
      incoming.use_count() > 1 || incoming.storage().use_count() > 1;
  source = slice_of_pixels(incoming);
  const bool copied = !source.is_same(incoming);
  const bool dense = source.is_contiguous(at::MemoryFormat::ChannelsLast);
  pixel_stride = dense ? source.size(1) : source.stride(3);
  target = dense && (copied || !shared)
               ? source
               : at::empty(source.sizes(), source.options().memory_format(
                                               at::MemoryFormat::ChannelsLast));
}

}  // namespace headroom::kernels
