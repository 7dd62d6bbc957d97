#include "parallel/cuda/kernels/image_pass.h"

#include <cuda_runtime.h>

#include <cmath>
#include <cstring>

#include "parallel/base/units.h"
#include "parallel/cuda/kernels/launch_kernel.h"

namespace headroom::cuda {
namespace {

constexpr int kThreads = 256;
constexpr int kBytes = 16;  // loaded by a thread at once

// Returns level / largest level: the product with the inverse, corrected by the
// product's exact remainder. For every level it has the same bits as a float32
// division, which would take more instructions and a branch.
template <typename T, typename Level>
__device__ T scaled(Level level) {
  constexpr float kMost = sizeof(Level) == 1 ? 255.0f : 65535.0f;
  constexpr float kInverse = 1.0f / kMost;
  const auto value = static_cast<float>(level);
  const float product = value * kInverse;
  const float left = std::fma(-product, kMost, value);
  return static_cast<T>(std::fma(left, kInverse, product));
}

template <typename T, typename Level>
__global__ void __launch_bounds__(kThreads)
    scale_kernel(const __grid_constant__ ImageArguments arguments) {
  constexpr int kLevels = kBytes / sizeof(Level);
  const int64_t first =
      (static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x) * kLevels;
  const auto* const images = static_cast<const Level*>(arguments.images);
  T* const input = static_cast<T*>(arguments.input);
  const int64_t left = arguments.size - first;
  if (left < kLevels || !arguments.is_aligned) {
    const int64_t end = first + (left < kLevels ? left : kLevels);
    for (int64_t i = first; i < end; ++i) {
      input[i] = scaled<T, Level>(images[i]);
    }
    return;
  }
  alignas(16) Level levels[kLevels];
  alignas(16) T values[kLevels];
  const uint4 loaded = *reinterpret_cast<const uint4*>(images + first);
  std::memcpy(levels, &loaded, sizeof(loaded));
  for (int i = 0; i < kLevels; ++i) values[i] = scaled<T, Level>(levels[i]);
  uint4* const to = reinterpret_cast<uint4*>(input + first);
  constexpr size_t kWords = kLevels * sizeof(T) / sizeof(uint4);
  for (size_t i = 0; i < kWords; ++i) {
    uint4 word;
    std::memcpy(&word, reinterpret_cast<const char*>(values) + i * sizeof(word),
                sizeof(word));
    to[i] = word;
  }
}

template <typename T, typename Level>
int launch(const ImageArguments& arguments, void* stream) {
  constexpr int64_t kOfBlock = int64_t{kThreads} * kBytes / sizeof(Level);
  return launch_kernel(
      scale_kernel<T, Level>,
      static_cast<unsigned>(divided_up(arguments.size, kOfBlock)), kThreads,
      stream, arguments);
}

template <typename T>
int launch(const ImageArguments& arguments, void* stream) {
  if (arguments.size == 0) return cudaSuccess;
  return arguments.is_deep ? launch<T, uint16_t>(arguments, stream)
                           : launch<T, uint8_t>(arguments, stream);
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
