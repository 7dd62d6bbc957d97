#include "worker/optim/sgd.h"

#include <ATen/Dispatch.h>

#include "worker/optim/flat_check.h"
#include "worker/optim/flat_kernels.h"

namespace headroom::optim {

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
    for_each_range(segments, parameters.numel(), groups,
                   [&](int64_t from, int64_t to, const GroupSettings& group) {
                     const kernels::SgdCoefficients<scalar_t> coefficients{
                         static_cast<scalar_t>(group.lr),
                         static_cast<scalar_t>(group.weight_decay),
                         static_cast<scalar_t>(momentum),
                         static_cast<scalar_t>(clip_coefficient), first_step};
                     sgd_range(p + from, g + from, buffer + from, to - from,
                               coefficients);
                   });
  });
}

}  // namespace headroom::optim
