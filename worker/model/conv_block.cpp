#include "worker/model/conv_block.h"

#include <ATen/core/ivalue.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>

#include <string>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "worker/kernels/cpu/convolution.h"
#include "worker/kernels/cpu/grouped_batch_norm.h"
#include "worker/model/derived_maps.h"
#include "worker/model/halo_rows.h"
#include "worker/model/replay_log.h"

namespace headroom::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// Data for backward that autograd does not save. The groups are copied, because
// the next micro-batch may replace the groups in StepContext before this
// micro-batch's backward.
struct BlockPlan : torch::CustomClassHolder {
  kernels::ConvolutionShape convolution;
  kernels::GroupedBatchNorm norm;
  HaloReach reach;  // empty if x has all rows that the kernel needs
  HaloExchange* halo = nullptr;  // nullptr if the reach is empty
  at::Tensor ready;              // 16-bit copy of the weight; may be undefined
  // The parameters to whose gradients the kernels add directly
  // (StepContext::adds_gradients). If undefined, autograd adds the gradient. In
  // both cases autograd then calls the parameter's post-accumulation hooks:
  // LibTorch 2.11 calls them for an undefined gradient too.
  at::Tensor weight, norm_weight, norm_bias;
};

// Returns true if the parameter has a gradient that a kernel can add to.
bool holds_gradient(const at::Tensor& parameter, const at::Tensor& x) {
  const bool computes_in_double = x.scalar_type() == at::kDouble;
  return parameter.is_leaf() && parameter.requires_grad() &&
         parameter.scalar_type() ==
             (computes_in_double ? at::kDouble : at::kFloat) &&
         parameter.grad().defined() &&
         parameter.grad().is_non_overlapping_and_dense();
}

c10::intrusive_ptr<BlockPlan> plan_block(const ConvBlockArguments& arguments,
                                         const StepContext& context) {
  auto plan = c10::make_intrusive<BlockPlan>();
  plan->convolution = {arguments.stride, arguments.padding, arguments.padding,
                       arguments.groups};
  plan->ready = arguments.compute_weight;
  plan->norm.activation = arguments.activation;
  if (context.halo != nullptr) {
    plan->reach = convolution_reach(arguments.weight.size(2), arguments.stride,
                                    arguments.padding);
    // The rows around x replace the padding.
    plan->convolution.padding_height = 0;
    if (!plan->reach.is_empty()) plan->halo = context.halo;
  }
  if (context.adds_gradients && !arguments.x.is_cpu()) {
    if (holds_gradient(arguments.weight, arguments.x)) {
      plan->weight = arguments.weight;
    }
    if (holds_gradient(arguments.norm_weight, arguments.x) &&
        holds_gradient(arguments.norm_bias, arguments.x)) {
      plan->norm_weight = arguments.norm_weight;
      plan->norm_bias = arguments.norm_bias;
    }
  }
  if (context.training) {
    plan->norm.groups = context.groups;
    plan->norm.exchange = context.exchange;
  } else {
    const int64_t samples = arguments.x.size(0);
    plan->norm.groups = {{0, samples, samples, false}};
    plan->norm.fixed_statistics = true;
  }
  return plan;
}

// This layer's slice of the step's batch-norm sums; undefined if the context
// has no sums.
at::Tensor sums_slice(const ConvBlockArguments& arguments,
                      const StepContext& context) {
  if (!context.batch_norm_sums.defined()) return {};
  const int64_t size = 2 * arguments.weight.size(0);
  HEADROOM_CHECK(
      arguments.sums_offset + size <= context.batch_norm_sums.numel(),
      cat("batch_norm_sums has ", context.batch_norm_sums.numel(),
          " elements, but this layer's slice ends at ",
          arguments.sums_offset + size));
  return context.batch_norm_sums.narrow(0, arguments.sums_offset, size);
}

// Statistics of the step's groups. If the layer is run again, returns the
// statistics of the first pass, so that sums are exchanged and counted once.
at::Tensor step_statistics(const at::Tensor& y, BlockPlan& plan,
                           const ConvBlockArguments& arguments,
                           const StepContext& context) {
  if (context.halo != nullptr) {
    plan.norm.global_rows = context.halo->window(y.size(2)).global_rows;
    HEADROOM_CHECK(
        plan.norm.exchange != nullptr || plan.norm.global_rows == y.size(2),
        cat("statistics of ", plan.norm.global_rows,
            " rows need an exchange: ", y.size(2), " are here"));
  }
  const auto compute = [&] {
    return kernels::batch_statistics(y, plan.norm, kBatchNormEpsilon,
                                     sums_slice(arguments, context));
  };
  return context.replay_log != nullptr ? context.replay_log->once(compute)
                                       : compute();
}

// Registers how the output is computed again from y and its statistics. The
// affine parameters are copied, because a layer's parameters may be released
// between its forward and its backward, and later layers need the output before
// that backward.
void note_derivation(const at::Tensor& out, const at::Tensor& y,
                     const at::Tensor& statistics,
                     const at::Tensor& norm_weight, const at::Tensor& norm_bias,
                     const c10::intrusive_ptr<BlockPlan>& plan,
                     const StepContext& context) {
  if (context.derived == nullptr) return;
  context.derived->can_be_made(
      out, {y, statistics},
      [plan, weight = norm_weight.detach().clone(),
       bias =
           norm_bias.detach().clone()](const std::vector<at::Tensor>& sources) {
        return kernels::normalise_and_activate(sources[0], sources[1], weight,
                                               bias, plan->norm);
      });
}

class ConvBlockFunction : public torch::autograd::Function<ConvBlockFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const at::Tensor& weight,
                            const at::Tensor& norm_weight,
                            const at::Tensor& norm_bias,
                            const ConvBlockArguments* arguments,
                            const StepContext* context) {
    auto plan = plan_block(*arguments, *context);
    const at::Tensor input = x.contiguous(at::MemoryFormat::ChannelsLast);
    variable_list received;
    if (plan->halo != nullptr)
      received.push_back(fetch_halo(input, plan->reach, 0, *context));
    const at::Tensor y = kernels::convolution(
        received.empty() ? input
                         : join_halo(input, received.front(), plan->reach),
        compute_weight(input, weight, plan->ready), plan->convolution);
    const at::Tensor statistics =
        plan->norm.fixed_statistics
            ? kernels::running_statistics(arguments->running_mean,
                                          arguments->running_var,
                                          kBatchNormEpsilon)
            : step_statistics(y, *plan, *arguments, *context);
    at::Tensor out = kernels::normalise_and_activate(y, statistics, norm_weight,
                                                     norm_bias, plan->norm);
    note_derivation(out, y, statistics, norm_weight, norm_bias, plan, *context);
    variable_list saved = {input,     weight, norm_weight,
                           norm_bias, y,      statistics};
    saved.insert(saved.end(), received.begin(), received.end());
    ctx->save_for_backward(std::move(saved));
    ctx->saved_data["plan"] = at::IValue::make_capsule(std::move(plan));
    return out;
  }

  // `grads` is a reference because a copy would hold a second reference to the
  // gradient, which is changed in place if there is only one.
  static variable_list backward(AutogradContext* ctx, variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const at::Tensor& norm_weight = saved[2];
    const at::Tensor& norm_bias = saved[3];
    const at::Tensor& y = saved[4];
    const at::Tensor& statistics = saved[5];
    const auto plan = c10::static_intrusive_pointer_cast<BlockPlan>(
        ctx->saved_data["plan"].toCapsule());

    kernels::AffineGradients added_to;
    if (plan->norm_weight.defined()) {
      added_to = {plan->norm_weight.grad(), plan->norm_bias.grad()};
    }
    const kernels::GroupedBatchNormGradients norm =
        kernels::grouped_batch_norm_gradients(std::move(grads[0]), y,
                                              statistics, norm_weight,
                                              norm_bias, plan->norm, added_to);
    kernels::ConvolutionGradients convolution = kernels::convolution_gradients(
        norm.dy,
        plan->halo != nullptr ? join_halo(x, saved[6], plan->reach) : x,
        compute_weight(x, weight, plan->ready), plan->convolution,
        ctx->needs_input_grad(0), ctx->needs_input_grad(1));
    if (convolution.dweight.defined() && plan->weight.defined()) {
      plan->weight.grad().add_(convolution.dweight);
      convolution.dweight.reset();
    } else if (convolution.dweight.defined()) {
      convolution.dweight = convolution.dweight.to(weight.scalar_type());
    }
    if (plan->halo != nullptr && convolution.dx.defined())
      convolution.dx = give_back_halo(convolution.dx, plan->reach, *plan->halo);
    return {convolution.dx,  convolution.dweight, norm.dnorm_weight,
            norm.dnorm_bias, at::Tensor(),        at::Tensor()};
  }
};

}  // namespace

at::Tensor conv_block(const ConvBlockArguments& arguments,
                      const StepContext& context) {
  return ConvBlockFunction::apply(arguments.x, arguments.weight,
                                  arguments.norm_weight, arguments.norm_bias,
                                  &arguments, &context);
}

}  // namespace headroom::model
