#include "parallel/cuda/render_arguments.h"

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

}  // namespace headroom::cuda
