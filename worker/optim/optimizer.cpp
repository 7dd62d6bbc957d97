#include "worker/optim/optimizer.h"

#include <ATen/Dispatch.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <cmath>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/optim/flat_kernels.h"

namespace headroom::optim {
namespace {

constexpr int64_t kMinChunk = 1 << 14;
constexpr int64_t kMaxChunks = 1024;

}  // namespace

double squared_norm_of_sum(const at::Tensor& a, const at::Tensor& b) {
  check_flat_pair("gradient", a, "added gradient", b.defined() ? b : a);
  const int64_t size = a.numel();
  const int64_t chunk = std::max(kMinChunk, divided_up(size, kMaxChunks));
  const int64_t num_chunks = divided_up(size, chunk);
  std::array<double, kMaxChunks> sums = {};
  AT_DISPATCH_FLOATING_TYPES(a.scalar_type(), "squared_norm_of_sum", [&] {
    const scalar_t* pa = a.const_data_ptr<scalar_t>();
    const scalar_t* pb = b.defined() ? b.const_data_ptr<scalar_t>() : nullptr;
    at::parallel_for(0, num_chunks, 1, [&](int64_t begin, int64_t end) {
      for (int64_t i = begin; i < end; ++i) {
        const int64_t offset = i * chunk;
        sums[static_cast<size_t>(i)] =
            sum_of_squares(pa + offset, pb == nullptr ? nullptr : pb + offset,
                           std::min(chunk, size - offset));
      }
    });
  });
  double sum = 0;
  for (int64_t i = 0; i < num_chunks; ++i) sum += sums[static_cast<size_t>(i)];
  return sum;
}

void add_in_place(const at::Tensor& a, const at::Tensor& b) {
  check_flat_pair("gradient", a, "added gradient", b);
  a.add_(b);
}

double clip_coefficient(double norm, double max_norm) {
  return kernels::clip_coefficient(norm, max_norm);
}

namespace {

// Number of elements. Three arrays of this length fit in the L2 cache.
constexpr int64_t kGrain = 1 << 15;

void check_segments(std::span<const Segment> segments, int64_t size) {
  int64_t end = 0;
  for (const Segment& segment : segments) {
    HEADROOM_CHECK(segment.offset >= end && segment.size >= 0 &&
                       segment.offset + segment.size <= size &&
                       segment.group >= 0 &&
                       segment.group < kNumParameterGroups,
                   cat("segment at ", segment.offset, " of size ", segment.size,
                       ", group ", segment.group, "; the one before ends at ",
                       end, ", the flat buffer at ", size));
    end = segment.offset + segment.size;
  }
}

constexpr double kBeta2 = 0.999, kEpsilon = 1e-8;

template <typename T>
kernels::AdamCoefficients<T> coefficients_of(const GroupSettings& group,
                                             const AdamSettings& settings) {
  const auto step = static_cast<double>(settings.step);
  kernels::AdamCoefficients<T> result;
  result.step_size =
      static_cast<T>(group.lr / (1 - std::pow(settings.beta1, step)));
  result.root_of_correction =
      static_cast<T>(std::sqrt(1 - std::pow(kBeta2, step)));
  result.one_minus_beta1 = static_cast<T>(1 - settings.beta1);
  result.beta2 = static_cast<T>(kBeta2);
  result.one_minus_beta2 = static_cast<T>(1 - kBeta2);
  result.epsilon = static_cast<T>(kEpsilon);
  result.clip = static_cast<T>(settings.clip_coefficient);
  if (settings.decoupled_decay) {
    result.shrink = static_cast<T>(1 - group.lr * group.weight_decay);
  } else {
    result.weight_decay = static_cast<T>(group.weight_decay);
  }
  return result;
}

}  // namespace

void for_each_range(
    std::span<const Segment> segments, int64_t size,
    const AllGroupSettings& groups,
    const std::function<void(int64_t, int64_t, const GroupSettings&)>& update) {
  check_segments(segments, size);
  at::parallel_for(0, size, kGrain, [&](int64_t begin, int64_t end) {
    auto segment = std::partition_point(
        segments.begin(), segments.end(),
        [begin](const Segment& s) { return s.offset + s.size <= begin; });
    for (; segment != segments.end() && segment->offset < end; ++segment) {
      update(std::max(begin, segment->offset),
             std::min(end, segment->offset + segment->size),
             groups[static_cast<size_t>(segment->group)]);
    }
  });
}

void sgd_step(const at::Tensor& parameters, const at::Tensor& gradients,
              const at::Tensor& momentum_buffer,
              std::span<const Segment> segments, const AllGroupSettings& groups,
              double momentum, double clip_coefficient, bool first_step) {
  check_flat_pair("parameters", parameters, "gradients", gradients);
  check_flat_pair("parameters", parameters, "momentum", momentum_buffer);

  AT_DISPATCH_FLOATING_TYPES(parameters.scalar_type(), "sgd_step", [&] {
    scalar_t* p = parameters.mutable_data_ptr<scalar_t>();
    const scalar_t* g = gradients.const_data_ptr<scalar_t>();
    scalar_t* buffer = momentum_buffer.mutable_data_ptr<scalar_t>();
    for_each_range(
        segments, parameters.numel(), groups,
        [&](int64_t from, int64_t to, const GroupSettings& group) {
          const kernels::SgdCoefficients<scalar_t> coefficients{
              .lr = static_cast<scalar_t>(group.lr),
              .weight_decay = static_cast<scalar_t>(group.weight_decay),
              .momentum = static_cast<scalar_t>(momentum),
              .clip = static_cast<scalar_t>(clip_coefficient),
              .first_step = first_step};
          sgd_range(p + from, g + from, buffer + from, to - from, coefficients);
        });
  });
}

kernels::AdamCoefficients<double> adam_coefficients(
    const GroupSettings& group, const AdamSettings& settings) {
  return coefficients_of<double>(group, settings);
}

void adam_step(const at::Tensor& parameters, const at::Tensor& gradients,
               const at::Tensor& first_moment, const at::Tensor& second_moment,
               std::span<const Segment> segments,
               const AllGroupSettings& groups, const AdamSettings& settings) {
  check_flat_pair("parameters", parameters, "gradients", gradients);
  check_flat_pair("parameters", parameters, "first moment", first_moment);
  check_flat_pair("parameters", parameters, "second moment", second_moment);
  HEADROOM_CHECK(settings.step >= 1, cat("step ", settings.step));

  AT_DISPATCH_FLOATING_TYPES(parameters.scalar_type(), "adam_step", [&] {
    scalar_t* p = parameters.mutable_data_ptr<scalar_t>();
    const scalar_t* g = gradients.const_data_ptr<scalar_t>();
    scalar_t* m = first_moment.mutable_data_ptr<scalar_t>();
    scalar_t* v = second_moment.mutable_data_ptr<scalar_t>();
    for_each_range(segments, parameters.numel(), groups,
                   [&](int64_t from, int64_t to, const GroupSettings& group) {
                     adam_range(p + from, g + from, m + from, v + from,
                                to - from,
                                coefficients_of<scalar_t>(group, settings));
                   });
  });
}

std::vector<std::string> moment_names(OptimizerKind kind) {
  std::vector<std::string> names = {"momentum"};
  if (kind != OptimizerKind::kSgd) names = {"first_moment", "second_moment"};
  HEADROOM_CHECK(std::ssize(names) == configs::num_moments(kind),
                 "plans count other moments than there are");
  return names;
}

void optimizer_step(OptimizerKind kind, const OptimizerStep& step,
                    const at::Tensor& parameters, const at::Tensor& gradients,
                    std::span<const at::Tensor> moments,
                    std::span<const Segment> segments) {
  HEADROOM_CHECK(moments.size() == moment_names(kind).size(),
                 cat(moments.size(), " moments"));
  if (kind == OptimizerKind::kSgd) {
    sgd_step(parameters, gradients, moments[0], segments, step.groups,
             step.momentum, step.clip_coefficient, step.step == 1);
    return;
  }
  adam_step(parameters, gradients, moments[0], moments[1], segments,
            step.groups,
            {.beta1 = step.momentum,
             .step = step.step,
             .clip_coefficient = step.clip_coefficient,
             .decoupled_decay = kind == OptimizerKind::kAdamW});
}

double ema_decay(int64_t updates) {
  return 0.9999 * (1 - std::exp(-static_cast<double>(updates) / 2000));
}

void ema_update(const at::Tensor& average, const at::Tensor& value,
                int64_t updates) {
  check_flat_pair("average", average, "value", value);
  HEADROOM_CHECK(updates >= 1, cat("update ", updates));
  average.lerp_(value, 1 - ema_decay(updates));
}

}  // namespace headroom::optim
