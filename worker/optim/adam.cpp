#include "worker/optim/adam.h"

#include <ATen/Dispatch.h>

#include <cmath>

#include "worker/optim/flat_check.h"
#include "worker/optim/flat_kernels.h"

namespace headroom::optim {
namespace {

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
  HEADROOM_CHECK(settings.step >= 1, "step " + std::to_string(settings.step));

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

}  // namespace headroom::optim
