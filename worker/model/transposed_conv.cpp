#include "worker/model/transposed_conv.h"

#include <torch/csrc/autograd/custom_function.h>

#include "worker/kernels/cpu/convolution.h"
#include "worker/model/compute_weight.h"

namespace headroom::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// [k * k * C_out, C_in, 1, 1]: outputs by row, column, channel.
at::Tensor as_one_by_one(const at::Tensor& weight) {
  return weight.permute({2, 3, 1, 0}).reshape({-1, weight.size(0), 1, 1});
}

// Cells [N, k * k * C, H, W] to a map [N, C, k H, k W], channels-last: a copy.
at::Tensor spread(const at::Tensor& cells, int64_t k) {
  const int64_t n = cells.size(0), height = cells.size(2),
                width = cells.size(3), channels = cells.size(1) / (k * k);
  return cells.permute({0, 2, 3, 1})
      .reshape({n, height, width, k, k, channels})
      .permute({0, 1, 3, 2, 4, 5})
      .reshape({n, k * height, k * width, channels})
      .permute({0, 3, 1, 2});
}

// The way back.
at::Tensor gathered(const at::Tensor& map, int64_t k) {
  const int64_t n = map.size(0), height = map.size(2) / k,
                width = map.size(3) / k, channels = map.size(1);
  return map.permute({0, 2, 3, 1})
      .reshape({n, height, k, width, k, channels})
      .permute({0, 1, 3, 2, 4, 5})
      .reshape({n, height, width, k * k * channels})
      .permute({0, 3, 1, 2});
}

class TransposedConvFunction
    : public torch::autograd::Function<TransposedConvFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const at::Tensor& weight, const at::Tensor& bias,
                            const at::Tensor* ready) {
    const at::Tensor input = x.contiguous(at::MemoryFormat::ChannelsLast);
    ctx->save_for_backward({input, weight});
    ctx->saved_data["ready"] = *ready;
    const at::Tensor cells = kernels::convolution(
        input, as_one_by_one(compute_weight(input, weight, *ready)), {});
    return spread(cells, weight.size(2))
        .add_(bias.to(cells.scalar_type()).view({1, -1, 1, 1}));
  }

  static variable_list backward(AutogradContext* ctx, variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const int64_t k = weight.size(2);
    at::Tensor dbias;
    if (ctx->needs_input_grad(2))
      dbias = grads[0].sum({0, 2, 3}, false, weight.scalar_type());
    kernels::ConvolutionGradients gradients = kernels::convolution_gradients(
        gathered(grads[0], k), x,
        as_one_by_one(
            compute_weight(x, weight, ctx->saved_data["ready"].toTensor())),
        {}, ctx->needs_input_grad(0), ctx->needs_input_grad(1));
    if (gradients.dweight.defined())
      gradients.dweight =
          gradients.dweight.reshape({k, k, weight.size(1), weight.size(0)})
              .permute({3, 2, 0, 1})
              .to(weight.scalar_type());
    return {gradients.dx, gradients.dweight, dbias, at::Tensor()};
  }
};

}  // namespace

at::Tensor transposed_conv(const at::Tensor& x, const at::Tensor& weight,
                           const at::Tensor& bias, const at::Tensor& ready) {
  return TransposedConvFunction::apply(x, weight, bias, &ready);
}

}  // namespace headroom::model
