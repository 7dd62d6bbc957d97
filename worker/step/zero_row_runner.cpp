#include "worker/step/zero_row_runner.h"

#include <torch/csrc/autograd/custom_function.h>

#include <utility>

namespace headroom::step {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The identity; its backward comes before that of the row behind it.
struct UseAgain : torch::autograd::Function<UseAgain> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& output,
                            zero::ShardedRows* rows, int64_t part) {
    context->saved_data["rows"] = reinterpret_cast<int64_t>(rows);
    context->saved_data["part"] = part;
    return output;
  }
  // By reference: the row works in place on a gradient that is its alone.
  static variable_list backward(AutogradContext* context,
                                variable_list& gradients) {
    reinterpret_cast<zero::ShardedRows*>(context->saved_data["rows"].toInt())
        ->use(context->saved_data["part"].toInt());
    return {std::move(gradients[0]), at::Tensor(), at::Tensor()};
  }
};

}  // namespace

std::vector<at::Tensor> ZeroRowRunner::run(
    int64_t index, model::Row& row, const std::vector<at::Tensor>& inputs,
    const model::StepContext& context) {
  const int64_t part = part_of_row_.at(static_cast<size_t>(index));
  if (part >= 0) rows_.use(part);
  std::vector<at::Tensor> outputs =
      inner_ != nullptr ? inner_->run(index, row, inputs, context)
                        : row.forward(inputs, context);
  if (part < 0) return outputs;
  rows_.done_with(part);
  for (at::Tensor& output : outputs) {
    if (output.requires_grad()) output = UseAgain::apply(output, &rows_, part);
  }
  return outputs;
}

}  // namespace headroom::step
