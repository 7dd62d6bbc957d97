// Compiled without fused multiply-add (CMakeLists.txt): the bytes must equal
// the CPU's, and a fused multiply-add rounds once less.
#include "parallel/cuda/kernels/render_samples.h"

#include <cuda_runtime.h>

#include "parallel/base/units.h"
#include "parallel/cuda/kernels/launch_kernel.h"
#include "parallel/cuda/kernels/render_body.h"

namespace headroom::cuda {
namespace {

constexpr int kThreads = 256;

// A row of blocks renders one sample, so all its threads read one recipe.
template <typename Level>
__global__ void __launch_bounds__(kThreads, kBlocksAtATime)
    render_kernel(const RenderArguments arguments) {
  const int64_t pixel =
      static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (pixel >= int64_t{arguments.rows} * arguments.width) return;
  render_pixel<Level>(arguments, static_cast<int>(blockIdx.y),
                      static_cast<int>(pixel / arguments.width),
                      static_cast<int>(pixel % arguments.width));
}

}  // namespace
}  // namespace headroom::cuda

extern "C" {

int headroom_render_samples(const headroom::cuda::RenderArguments* arguments,
                            void* stream) {
  using namespace headroom::cuda;
  const int64_t pixels = int64_t{arguments->rows} * arguments->width;
  if (arguments->count == 0 || pixels == 0) return cudaSuccess;
  const dim3 blocks(
      static_cast<unsigned>(headroom::divided_up(pixels, kThreads)),
      static_cast<unsigned>(arguments->count));
  return launch_kernel(
      arguments->is_deep ? render_kernel<uint16_t> : render_kernel<uint8_t>,
      blocks, kThreads, stream, *arguments);
}
}
