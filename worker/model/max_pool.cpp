#include "worker/model/max_pool.h"

#include <ATen/core/ivalue.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/max_pool2d.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>

#include "parallel/base/device_scratch.h"
#include "worker/kernels/cpu/grouped_batch_norm.h"
#include "worker/kernels/cpu/kernel_registration.h"
#include "worker/model/saved_pointer.h"

namespace headroom::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

at::Tensor empty_map(const at::Tensor& like, int64_t rows,
                     at::ScalarType type) {
  return at::empty(
      {like.size(0), like.size(1), rows, like.size(3)},
      like.options().dtype(type).requires_grad(false).memory_format(
          at::MemoryFormat::ChannelsLast));
}

class MaxPoolFunction : public torch::autograd::Function<MaxPoolFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            int64_t window, int64_t rows,
                            kernels::DeviceKernels* kernels, bool is_recorded) {
    at::Tensor out = empty_map(x, rows, x.scalar_type());
    const at::Tensor choices =
        is_recorded ? empty_map(x, rows, at::kByte) : at::Tensor();
    kernels->max_pool(x.contiguous(at::MemoryFormat::ChannelsLast), window, out,
                      choices);
    if (!is_recorded) return out;
    ctx->save_for_backward({choices});
    ctx->saved_data["kernels"] = save_pointer(kernels);
    ctx->saved_data["window"] = window;
    ctx->saved_data["rows"] = x.size(2);
    return out;
  }

  static variable_list backward(AutogradContext* ctx,
                                const variable_list& grads) {
    const at::Tensor choices = ctx->get_saved_variables().front();
    const at::Tensor dout = kernels::slice_of_pixels(grads.front());
    at::Tensor dx =
        empty_map(dout, ctx->saved_data["rows"].toInt(), dout.scalar_type());
    saved_pointer<kernels::DeviceKernels>(ctx->saved_data["kernels"])
        ->max_pool_gradient(dout, choices, ctx->saved_data["window"].toInt(),
                            dx);
    return {dx, {}, {}, {}, {}};
  }
};

}  // namespace

at::Tensor max_pool(const at::Tensor& x, int64_t window, int64_t rows_beyond) {
  kernels::DeviceKernels* const kernels = kernels::device_kernels_for(x);
  if (kernels == nullptr || !chooses_in_bytes(window)) {
    return at::max_pool2d(x, {window, window}, {1, 1},
                          {rows_beyond, window / 2});
  }
  return MaxPoolFunction::apply(
      x, window, x.size(2) + 2 * rows_beyond - window + 1, kernels,
      c10::GradMode::is_enabled() && x.requires_grad());
}

}  // namespace headroom::model
