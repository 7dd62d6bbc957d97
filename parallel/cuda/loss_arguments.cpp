#include "parallel/cuda/loss_arguments.h"

#include <string>

#include "parallel/base/check.h"

namespace headroom::cuda {
namespace {

// [count, ...] of `type`, dense, where `beside` is.
void check_operand(const at::Tensor& tensor, int64_t numel, at::ScalarType type,
                   const at::Tensor& beside, const char* name) {
  HEADROOM_CHECK(tensor.numel() == numel && tensor.is_contiguous() &&
                     tensor.scalar_type() == type &&
                     tensor.device() == beside.device(),
                 std::string(name) + " has " + std::to_string(tensor.numel()) +
                     " elements of " + c10::toString(tensor.scalar_type()) +
                     " on " + tensor.device().str());
}

bool is_double(const at::Tensor& values) {
  HEADROOM_CHECK(
      values.scalar_type() == at::kDouble || values.scalar_type() == at::kFloat,
      std::string("a loss of ") + c10::toString(values.scalar_type()));
  return values.scalar_type() == at::kDouble;
}

}  // namespace

FitArguments fit_arguments(const at::Tensor& fields, const at::Tensor& boxes,
                           const at::Tensor& anchors, const at::Tensor& ciou,
                           const at::Tensor& gradient) {
  const int64_t rows = fields.size(0);
  HEADROOM_CHECK(
      fields.dim() == 2 && fields.size(1) >= 4 && fields.stride(1) == 1,
      "rows of fields are [M, fields], each dense");
  const at::ScalarType type = fields.scalar_type();
  check_operand(boxes, rows * 4, type, fields, "boxes");
  check_operand(anchors, rows * 2, type, fields, "anchors");
  check_operand(ciou, rows, at::kDouble, fields, "ciou");
  check_operand(gradient, rows * 4, at::kDouble, fields, "gradient");
  FitArguments arguments;
  arguments.is_double = is_double(fields);
  arguments.fields = fields.const_data_ptr();
  arguments.stride = fields.stride(0);
  arguments.boxes = boxes.const_data_ptr();
  arguments.anchors = anchors.const_data_ptr();
  arguments.ciou = ciou.mutable_data_ptr<double>();
  arguments.gradient = gradient.mutable_data_ptr<double>();
  arguments.rows = rows;
  return arguments;
}

EntropyArguments entropy_arguments(const at::Tensor& logits,
                                   const at::Tensor& targets,
                                   const kernels::EntropyRule& rule,
                                   const at::Tensor& value,
                                   const at::Tensor& derivative) {
  const int64_t count = logits.numel();
  check_operand(logits, count, logits.scalar_type(), logits, "logits");
  check_operand(targets, count, at::kDouble, logits, "targets");
  check_operand(value, count, at::kDouble, logits, "value");
  check_operand(derivative, count, at::kDouble, logits, "derivative");
  EntropyArguments arguments;
  arguments.is_double = is_double(logits);
  arguments.logits = logits.const_data_ptr();
  arguments.targets = targets.const_data_ptr<double>();
  arguments.rule = rule;
  arguments.value = value.mutable_data_ptr<double>();
  arguments.derivative = derivative.mutable_data_ptr<double>();
  arguments.count = count;
  return arguments;
}

}  // namespace headroom::cuda
