#include "parallel/collectives/flat_view.h"

#include <string>

#include "parallel/base/check.h"

namespace headroom::collectives {

at::Tensor flat_view(const at::Tensor& tensor) {
  HEADROOM_CHECK(tensor.defined() && tensor.is_cpu(),
                 "collectives take CPU tensors");
  const at::ScalarType type = tensor.scalar_type();
  HEADROOM_CHECK(type == at::kFloat || type == at::kDouble ||
                     type == at::kLong || type == at::kByte,
                 std::string("collectives take float, double, int64 and "
                             "uint8, not ") +
                     at::toString(type));
  HEADROOM_CHECK(tensor.is_non_overlapping_and_dense(),
                 "collectives take tensors without holes or overlap");
  return tensor.detach().as_strided({tensor.numel()}, {1});
}

at::Tensor message_view(const at::Tensor& tensor) {
  const bool has_16_bits =
      tensor.defined() && (tensor.scalar_type() == at::kBFloat16 ||
                           tensor.scalar_type() == at::kHalf);
  if (!has_16_bits) return flat_view(tensor);
  HEADROOM_CHECK(tensor.is_cpu() && tensor.is_non_overlapping_and_dense(),
                 "messages are CPU tensors without holes or overlap");
  return tensor.detach().as_strided({tensor.numel()}, {1}).view(at::kByte);
}

}  // namespace headroom::collectives
