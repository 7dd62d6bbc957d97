#include "worker/model/conv_block.h"

#include <ATen/core/ivalue.h>
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <cmath>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "worker/model/kernels/batch_norm_silu.h"

namespace headroom {

namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The groups of one call as backward needs them: they outlive StepContext's
// vector, which the next micro-batch may replace.
struct GroupPlan : torch::CustomClassHolder {
  std::vector<BatchNormGroup> groups;
  StatisticsExchange* exchange = nullptr;
  // Running statistics do not depend on the samples: no gradient through them.
  bool fixed_statistics = false;
  int64_t stride = 1;
  int64_t padding = 0;
};

// Mean and inverse deviation of every group: [group][2][channel], double.
class GroupStatistics {
 public:
  GroupStatistics(const at::Tensor& tensor, int64_t channels)
      : values_(tensor.data_ptr<double>()), channels_(channels) {}
  std::span<double> mean(int64_t group) const { return row(2 * group); }
  std::span<double> inverse_deviation(int64_t group) const {
    return row(2 * group + 1);
  }

 private:
  std::span<double> row(int64_t index) const {
    return {values_ + index * channels_, static_cast<size_t>(channels_)};
  }
  double* values_;
  int64_t channels_;
};

// Two rows of sums per group, in the order in which they are exchanged.
class GroupSums {
 public:
  GroupSums(size_t num_groups, int64_t channels)
      : values_(2 * num_groups * channels), channels_(channels) {}
  std::span<double> first(size_t group) { return row(2 * group); }
  std::span<double> second(size_t group) { return row(2 * group + 1); }
  std::span<double> all() { return values_; }

 private:
  std::span<double> row(size_t index) {
    return {values_.data() + index * channels_, static_cast<size_t>(channels_)};
  }
  std::vector<double> values_;
  int64_t channels_;
};

// Calls body with a value of the tensor's element type.
template <typename Body>
void with_element_type(const at::Tensor& tensor, const Body& body) {
  if (tensor.scalar_type() == at::kFloat) {
    body(float{});
  } else {
    HEADROOM_CHECK(tensor.scalar_type() == at::kDouble,
                   std::string("conv_block computes in float32 and float64, "
                               "but its input is ") +
                       c10::toString(tensor.scalar_type()));
    body(double{});
  }
}

// A parameter per channel, and back into its gradient. Plain loops: an ATen
// conversion costs more than the few values' arithmetic.
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

double values_per_channel(const BatchNormGroup& group, const at::Tensor& map) {
  return static_cast<double>(group.global_samples * map.size(2) * map.size(3));
}

at::Tensor convolve(const at::Tensor& x, const at::Tensor& weight,
                    int64_t stride, int64_t padding) {
  const auto extent = [&](int64_t axis) {
    return (x.size(axis) + 2 * padding - weight.size(axis)) / stride + 1;
  };
  if (x.size(0) == 0) {
    return at::empty({0, weight.size(0), extent(2), extent(3)},
                     x.options().memory_format(at::MemoryFormat::ChannelsLast));
  }
  return at::convolution(x, weight, {}, {stride, stride}, {padding, padding},
                         {1, 1}, false, {0, 0}, 1)
      .contiguous(at::MemoryFormat::ChannelsLast);
}

// Fills the statistics of every group from its samples on all ranks, and adds
// them to the step's batch-norm sums.
void measure_statistics(const at::Tensor& y, const GroupPlan& plan,
                        const GroupStatistics& statistics,
                        std::span<double> batch_norm_sums) {
  const int64_t channels = y.size(1);
  GroupSums sums(plan.groups.size(), channels);
  with_element_type(y, [&](auto zero) {
    using T = decltype(zero);
    for (size_t g = 0; g < plan.groups.size(); ++g) {
      const GroupPixels pixels(plan.groups[g], y);
      channel_sums(y.const_data_ptr<T>() + pixels.offset, pixels.count,
                   sums.first(g), sums.second(g));
    }
  });
  if (plan.exchange != nullptr) plan.exchange->sum(sums.all());
  for (size_t g = 0; g < plan.groups.size(); ++g) {
    const double n = values_per_channel(plan.groups[g], y);
    HEADROOM_CHECK(n > 1,
                   "a batch-norm group needs two values per channel, "
                   "but has " +
                       std::to_string(n));
    for (int64_t c = 0; c < channels; ++c) {
      const double mean = sums.first(g)[c] / n;
      const double squares = sums.second(g)[c] - n * mean * mean;
      // Rounding may leave a constant channel slightly below zero; written so
      // that a NaN stays one.
      const double centred = squares < 0 ? 0 : squares;
      statistics.mean(g)[c] = mean;
      statistics.inverse_deviation(g)[c] =
          1 / std::sqrt(centred / n + kBatchNormEpsilon);
      if (!batch_norm_sums.empty() && plan.groups[g].counts_here) {
        batch_norm_sums[c] += mean;
        batch_norm_sums[channels + c] += centred / (n - 1);
      }
    }
  }
}

void take_running_statistics(const ConvBlockArguments& arguments,
                             const GroupStatistics& statistics) {
  const std::vector<double> mean = to_doubles(arguments.running_mean);
  const std::vector<double> variance = to_doubles(arguments.running_var);
  for (size_t c = 0; c < mean.size(); ++c) {
    statistics.mean(0)[c] = mean[c];
    statistics.inverse_deviation(0)[c] =
        1 / std::sqrt(variance[c] + kBatchNormEpsilon);
  }
}

// This layer's slice of the step's sums; empty where they are not wanted.
std::span<double> sums_slice(const ConvBlockArguments& arguments,
                             const StepContext& context) {
  if (!context.training || !context.batch_norm_sums.defined()) return {};
  const int64_t size = 2 * arguments.weight.size(0);
  HEADROOM_CHECK(
      arguments.sums_offset + size <= context.batch_norm_sums.numel(),
      "batch_norm_sums has " + std::to_string(context.batch_norm_sums.numel()) +
          " elements, but this layer's slice ends at " +
          std::to_string(arguments.sums_offset + size));
  return {context.batch_norm_sums.data_ptr<double>() + arguments.sums_offset,
          static_cast<size_t>(size)};
}

void check_groups(const std::vector<BatchNormGroup>& groups, int64_t samples) {
  int64_t next = 0;
  for (const BatchNormGroup& group : groups) {
    HEADROOM_CHECK(
        group.local_begin == next && group.local_end >= group.local_begin,
        "batch-norm group of samples [" + std::to_string(group.local_begin) +
            ", " + std::to_string(group.local_end) + ") should begin at " +
            std::to_string(next));
    next = group.local_end;
  }
  HEADROOM_CHECK(next == samples, "batch-norm groups cover " +
                                      std::to_string(next) + " samples of " +
                                      std::to_string(samples));
}

// The incoming gradient and what it is turned into: the same memory where
// nobody else can see it.
struct GradientBuffers {
  at::Tensor source;
  at::Tensor target;
  int64_t pixel_stride = 0;  // of source

  explicit GradientBuffers(at::Tensor incoming) {
    const bool shared =
        incoming.use_count() > 1 || incoming.storage().use_count() > 1;
    source = is_slice_of_pixels(incoming)
                 ? incoming
                 : incoming.contiguous(at::MemoryFormat::ChannelsLast);
    const bool copied = !source.is_same(incoming);
    const bool dense = source.is_contiguous(at::MemoryFormat::ChannelsLast);
    pixel_stride = dense ? source.size(1) : source.stride(3);
    if (dense && (copied || !shared)) {
      target = source;
    } else {
      target = at::empty(source.sizes(), source.options().memory_format(
                                             at::MemoryFormat::ChannelsLast));
    }
  }

  // Some neighbouring channels of a channels-last map: what a concatenation
  // sends back.
  static bool is_slice_of_pixels(const at::Tensor& map) {
    const int64_t pixel = map.stride(3), width = map.size(3);
    return map.stride(1) == 1 && pixel >= map.size(1) &&
           map.stride(2) == width * pixel &&
           map.stride(0) == map.size(2) * width * pixel;
  }
};

class ConvBlockFunction : public torch::autograd::Function<ConvBlockFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const at::Tensor& weight,
                            const at::Tensor& norm_weight,
                            const at::Tensor& norm_bias,
                            const ConvBlockArguments* arguments,
                            const StepContext* context) {
    auto plan = c10::make_intrusive<GroupPlan>();
    plan->groups = context->groups;
    plan->exchange = context->exchange;
    plan->fixed_statistics = !context->training;
    plan->stride = arguments->stride;
    plan->padding = arguments->padding;
    if (plan->fixed_statistics)
      plan->groups = {{0, x.size(0), x.size(0), false}};
    check_groups(plan->groups, x.size(0));

    const at::Tensor input = x.contiguous(at::MemoryFormat::ChannelsLast);
    const at::Tensor y = convolve(input, weight, plan->stride, plan->padding);
    const int64_t channels = y.size(1);
    const at::Tensor statistics_tensor =
        at::empty({static_cast<int64_t>(plan->groups.size()), 2, channels},
                  y.options()
                      .dtype(at::kDouble)
                      .memory_format(at::MemoryFormat::Contiguous));
    const GroupStatistics statistics(statistics_tensor, channels);
    if (plan->fixed_statistics) {
      take_running_statistics(*arguments, statistics);
    } else {
      measure_statistics(y, *plan, statistics,
                         sums_slice(*arguments, *context));
    }

    at::Tensor out = at::empty_like(y);
    const std::vector<double> gamma = to_doubles(norm_weight);
    const std::vector<double> beta = to_doubles(norm_bias);
    with_element_type(y, [&](auto zero) {
      using T = decltype(zero);
      for (size_t g = 0; g < plan->groups.size(); ++g) {
        const GroupPixels pixels(plan->groups[g], y);
        batch_norm_silu(
            y.const_data_ptr<T>() + pixels.offset,
            out.data_ptr<T>() + pixels.offset, pixels.count,
            {statistics.mean(g), statistics.inverse_deviation(g), gamma, beta});
      }
    });
    ctx->save_for_backward(
        {input, weight, norm_weight, norm_bias, y, statistics_tensor});
    ctx->saved_data["plan"] = at::IValue::make_capsule(std::move(plan));
    return out;
  }

  // By reference: a copy of the list would hold a second reference to the
  // gradient, which is worked on in place where nobody else has one.
  static variable_list backward(AutogradContext* ctx, variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor& norm_weight = saved[2];
    const at::Tensor& norm_bias = saved[3];
    const at::Tensor& y = saved[4];
    const auto plan = c10::static_intrusive_pointer_cast<GroupPlan>(
        ctx->saved_data["plan"].toCapsule());
    const int64_t channels = y.size(1);
    const GroupStatistics statistics(saved[5], channels);
    GradientBuffers gradient(std::move(grads[0]));
    const std::vector<double> gamma = to_doubles(norm_weight);
    const std::vector<double> beta = to_doubles(norm_bias);
    const auto norm = [&](size_t g) -> ChannelNorm {
      return {statistics.mean(g), statistics.inverse_deviation(g), gamma, beta};
    };

    GroupSums norm_gradient(1, channels);
    with_element_type(y, [&](auto zero) {
      using T = decltype(zero);
      GroupSums sums(plan->groups.size(), channels);
      for (size_t g = 0; g < plan->groups.size(); ++g) {
        const GroupPixels pixels(plan->groups[g], y);
        batch_norm_silu_backward(
            y.const_data_ptr<T>() + pixels.offset,
            gradient.source.const_data_ptr<T>() +
                pixels.offset / channels * gradient.pixel_stride,
            gradient.pixel_stride,
            gradient.target.data_ptr<T>() + pixels.offset, pixels.count,
            norm(g), sums.first(g), sums.second(g));
      }
      gradient.source.reset();
      add_norm_gradients(sums, plan->groups.size(), norm_gradient);
      to_group_means(*plan, y, sums);
      for (size_t g = 0; g < plan->groups.size(); ++g) {
        const GroupPixels pixels(plan->groups[g], y);
        batch_norm_backward(y.const_data_ptr<T>() + pixels.offset,
                            gradient.target.data_ptr<T>() + pixels.offset,
                            pixels.count, norm(g), sums.first(g),
                            sums.second(g));
      }
    });

    at::Tensor dx, dweight;
    const bool wants_input = ctx->needs_input_grad(0);
    const bool wants_weight = ctx->needs_input_grad(1);
    if (x.size(0) == 0) {
      if (wants_input) dx = at::empty_like(x);
      if (wants_weight) dweight = at::zeros_like(weight);
    } else if (wants_input || wants_weight) {
      std::tie(dx, dweight, std::ignore) = at::convolution_backward(
          gradient.target, x, weight, at::OptionalIntArrayRef(),
          {plan->stride, plan->stride}, {plan->padding, plan->padding}, {1, 1},
          false, {0, 0}, 1, {wants_input, wants_weight, false});
    }
    return {dx,
            dweight,
            from_doubles(norm_gradient.second(0), norm_weight),
            from_doubles(norm_gradient.first(0), norm_bias),
            at::Tensor(),
            at::Tensor()};
  }

 private:
  // Scale and bias belong to the rank-local gradient: they are added up over
  // ranks with all others.
  static void add_norm_gradients(GroupSums& sums, size_t num_groups,
                                 GroupSums& total) {
    for (size_t g = 0; g < num_groups; ++g) {
      for (size_t c = 0; c < total.first(0).size(); ++c) {
        total.first(0)[c] += sums.first(g)[c];
        total.second(0)[c] += sums.second(g)[c];
      }
    }
  }

  // What the statistics feed back to every value of the group.
  static void to_group_means(const GroupPlan& plan, const at::Tensor& y,
                             GroupSums& sums) {
    if (plan.fixed_statistics) {
      for (double& value : sums.all()) value = 0;
      return;
    }
    if (plan.exchange != nullptr) plan.exchange->sum(sums.all());
    for (size_t g = 0; g < plan.groups.size(); ++g) {
      const double n = values_per_channel(plan.groups[g], y);
      for (double& value : sums.first(g)) value /= n;
      for (double& value : sums.second(g)) value /= n;
    }
  }
};

}  // namespace

at::Tensor conv_block(const ConvBlockArguments& arguments,
                      const StepContext& context) {
  return ConvBlockFunction::apply(arguments.x, arguments.weight,
                                  arguments.norm_weight, arguments.norm_bias,
                                  &arguments, &context);
}

}  // namespace headroom
