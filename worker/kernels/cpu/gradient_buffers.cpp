#include "worker/kernels/cpu/gradient_buffers.h"

#include <ATen/ops/empty.h>

namespace headroom::kernels {

namespace {

bool is_slice_of_pixels(const at::Tensor& map) {
  const int64_t pixel = map.stride(3), width = map.size(3);
  return map.stride(1) == 1 && pixel >= map.size(1) &&
         map.stride(2) == width * pixel &&
         map.stride(0) == map.size(2) * width * pixel;
}

}  // namespace

GradientBuffers::GradientBuffers(at::Tensor incoming) {
  const bool shared =
      incoming.use_count() > 1 || incoming.storage().use_count() > 1;
  source = is_slice_of_pixels(incoming)
               ? incoming
               : incoming.contiguous(at::MemoryFormat::ChannelsLast);
  const bool copied = !source.is_same(incoming);
  const bool dense = source.is_contiguous(at::MemoryFormat::ChannelsLast);
  pixel_stride = dense ? source.size(1) : source.stride(3);
  target = dense && (copied || !shared)
               ? source
               : at::empty(source.sizes(), source.options().memory_format(
                                               at::MemoryFormat::ChannelsLast));
}

}  // namespace headroom::kernels
