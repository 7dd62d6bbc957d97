#include "parallel/cuda/kernel_arguments.h"

#include <algorithm>
#include <string>

#include "parallel/base/check.h"
#include "worker/kernels/packed_sample.h"

namespace headroom::cuda {
namespace {

void check_bytes(const at::Tensor& tensor, const char* name) {
  HEADROOM_CHECK(tensor.scalar_type() == at::kByte && tensor.is_contiguous(),
                 std::string(name) + " of " +
                     c10::toString(tensor.scalar_type()) +
                     ", to be dense bytes");
}

}  // namespace

RenderArguments render_arguments(const at::Tensor& region,
                                 std::span<const int64_t> starts,
                                 const at::Tensor& images, size_t first) {
  check_bytes(region, "packed samples");
  check_bytes(images, "images");
  HEADROOM_CHECK(images.dim() == 4 && region.device() == images.device() &&
                     images.size(0) == static_cast<int64_t>(starts.size()),
                 std::to_string(starts.size()) + " packed samples on " +
                     region.device().str() + " for " +
                     std::to_string(images.dim() == 0 ? 0 : images.size(0)) +
                     " images on " + images.device().str());
  RenderArguments arguments;
  arguments.region = region.const_data_ptr<uint8_t>();
  arguments.count = static_cast<int32_t>(
      std::min<size_t>(kMostRendered, starts.size() - first));
  for (int i = 0; i < arguments.count; ++i) {
    const int64_t start = starts[first + static_cast<size_t>(i)];
    HEADROOM_CHECK(
        start >= 0 && start % kernels::kPackedAlignment == 0 &&
            start + static_cast<int64_t>(sizeof(kernels::PackedSample)) <=
                region.numel(),
        "a packed sample at byte " + std::to_string(start) + " of " +
            std::to_string(region.numel()));
    arguments.starts[i] = start;
  }
  arguments.images = images.mutable_data_ptr<uint8_t>() +
                     static_cast<int64_t>(first) * images.stride(0);
  arguments.rows = static_cast<int32_t>(images.size(1));
  arguments.width = static_cast<int32_t>(images.size(2));
  arguments.bands = static_cast<int32_t>(images.size(3));
  return arguments;
}

namespace {

// Checks for [count, ...] of `type`, dense, on the device of `beside`.
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
