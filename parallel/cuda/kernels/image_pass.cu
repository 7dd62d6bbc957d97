#include "parallel/cuda/kernels/image_pass.h"

#include <cuda_runtime.h>

#include <cmath>
#include <cstring>

#include "parallel/base/units.h"
#include "parallel/cuda/kernels/launch_kernel.h"

namespace headroom::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBytes = 16;  // bytes of a thread: one load

// The byte / 255 in float32, whatever is made of it, to the bit: what the
// product leaves over is exact and corrects it. A division would take more
// instructions, and a branch for each byte.
template <typename T>
__device__ T scaled(uint8_t byte) {
  constexpr float kInverse = 1.0f / 255.0f;
  const auto value = static_cast<float>(byte);
  const float product = value * kInverse;
  const float left = std::fma(-product, 255.0f, value);
  return static_cast<T>(std::fma(left, kInverse, product));
}

template <typename T>
__global__ void __launch_bounds__(kThreads)
    scale_kernel(const __grid_constant__ ImageArguments arguments) {
  const int64_t first =
      (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kBytes;
  T* const input = static_cast<T*>(arguments.input);
  const int64_t left = arguments.size - first;
  if (left < kBytes || !arguments.is_aligned) {
    const int64_t end = first + (left < kBytes ? left : kBytes);
    for (int64_t i = first; i < end; ++i) {
      input[i] = scaled<T>(arguments.images[i]);
    }
    return;
  }
  alignas(16) uint8_t bytes[kBytes];
  alignas(16) T values[kBytes];
  const uint4 loaded =
      *reinterpret_cast<const uint4*>(arguments.images + first);
  std::memcpy(bytes, &loaded, sizeof(loaded));
  for (int i = 0; i < kBytes; ++i) values[i] = scaled<T>(bytes[i]);
  uint4* const to = reinterpret_cast<uint4*>(input + first);
  constexpr size_t kWords = kBytes * sizeof(T) / sizeof(uint4);
  for (size_t i = 0; i < kWords; ++i) {
    uint4 word;
    std::memcpy(&word, reinterpret_cast<const char*>(values) + i * sizeof(word),
                sizeof(word));
    to[i] = word;
  }
}

template <typename T>
int launch(const ImageArguments& arguments, void* stream) {
  if (arguments.size == 0) return cudaSuccess;
  constexpr int64_t kOfBlock = int64_t{kThreads} * kBytes;
  return launch_kernel(
      scale_kernel<T>,
      static_cast<unsigned>(divided_up(arguments.size, kOfBlock)), kThreads,
      stream, arguments);
}

}  // namespace
}  // namespace headroom::cuda

extern "C" int headroom_scale_images(
    const headroom::cuda::ImageArguments* arguments, void* stream) {
  using namespace headroom::cuda;
  switch (arguments->type) {
    case ElementType::kFloat64:
      return launch<double>(*arguments, stream);
    case ElementType::kFloat32:
      return launch<float>(*arguments, stream);
    case ElementType::kBFloat16:
      return launch<__nv_bfloat16>(*arguments, stream);
    case ElementType::kFloat16:
      return launch<__half>(*arguments, stream);
  }
  return cudaErrorInvalidValue;
}
