#include "worker/model/head_convolution.h"

#include <torch/csrc/autograd/custom_function.h>

#include "worker/kernels/cpu/convolution.h"
#include "worker/model/compute_weight.h"

namespace headroom::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class HeadFunction : public torch::autograd::Function<HeadFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const at::Tensor& weight, const at::Tensor& bias,
                            const at::Tensor* ready) {
    const at::Tensor input = x.contiguous(at::MemoryFormat::ChannelsLast);
    ctx->save_for_backward({input, weight});
    ctx->saved_data["ready"] = *ready;
    const at::Tensor y =
        kernels::convolution(input, compute_weight(input, weight, *ready), {});
    return y.to(bias.scalar_type()).add_(bias.view({1, -1, 1, 1}));
  }

  static variable_list backward(AutogradContext* ctx, variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    at::Tensor dbias;
    if (ctx->needs_input_grad(2)) dbias = grads[0].sum({0, 2, 3});
    const kernels::ConvolutionGradients gradients =
        kernels::convolution_gradients(
            grads[0]
                .to(x.scalar_type())
                .contiguous(at::MemoryFormat::ChannelsLast),
            x, compute_weight(x, weight, ctx->saved_data["ready"].toTensor()),
            {}, ctx->needs_input_grad(0), ctx->needs_input_grad(1));
    return {gradients.dx,
            gradients.dweight.defined()
                ? gradients.dweight.to(weight.scalar_type())
                : at::Tensor(),
            dbias, at::Tensor()};
  }
};

}  // namespace

at::Tensor head_convolution(const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias,
                            const at::Tensor& compute_weight) {
  return HeadFunction::apply(x, weight, bias, &compute_weight);
}

}  // namespace headroom::model
