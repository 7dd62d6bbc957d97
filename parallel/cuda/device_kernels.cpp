#include <ATen/core/CachingHostAllocator.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/set.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>

#include <map>
#include <mutex>
#include <utility>

#include "parallel/base/memory_category.h"
#include "parallel/cuda/launched_kernels.h"
#include "parallel/cuda/plugin_parts.h"

namespace headroom::cuda {
namespace {

void check(int error) { C10_CUDA_CHECK(static_cast<cudaError_t>(error)); }

// Arrival counters for the blocks of the summing passes. Each stream has its
// own counters, because streams of one device may sum at the same time.
unsigned* arrivals_of(cudaStream_t stream) {
  static std::mutex mutex;
  static auto* const known =
      new std::map<std::pair<int, cudaStream_t>, unsigned*>;
  const int device = c10::cuda::current_device();
  const std::lock_guard lock(mutex);
  const std::pair key(device, stream);
  const auto found = known->find(key);
  if (found != known->end()) return found->second;
  unsigned* arrivals = nullptr;
  check(headroom_arrivals(static_cast<int>(known->size()), &arrivals));
  (*known)[key] = arrivals;
  return arrivals;
}

struct Card {
  template <typename Values>
  static const Values& operand(const Values& values) {
    return values;
  }

  static int multiprocessors(const c10::Device& device) {
    return at::cuda::getDeviceProperties(device.index())->multiProcessorCount;
  }

  template <typename Work>
  static void launch(const Launch& launch, Work work) {
    const c10::cuda::CUDAGuard guard(launch.device);
    const cudaStream_t stream = at::cuda::getCurrentCUDAStream().stream();
    LaunchPlace place = {stream};
    at::Tensor partial;
    if (launch.partial_bytes > 0) {
      const MemoryCategoryScope scope(MemoryCategory::kWorkspace);
      partial = at::empty({launch.partial_bytes},
                          at::TensorOptions(launch.device).dtype(at::kByte));
      place.partial = partial.mutable_data_ptr();
      place.arrivals = arrivals_of(stream);
    }
    check(work(place));
  }

  // Uses CUDA's own host allocator: pin_memory() would use the allocator of the
  // process's accelerator, which may be another device. The page-locked copy
  // stays valid until the device has read it, because the allocator waits for
  // the stream before it reuses memory.
  static void copy(const at::Tensor& host, const at::Tensor& target) {
    at::HostAllocator* const pages = at::getHostAllocator(at::kCUDA);
    const c10::Storage storage(c10::Storage::use_byte_size_t(), host.nbytes(),
                               pages->allocate(host.nbytes()), pages,
                               /*resizable=*/false);
    const at::Tensor locked =
        at::empty({0}, host.options())
            .set_(storage, 0, host.sizes(), host.strides());
    locked.copy_(host);
    target.copy_(locked, /*non_blocking=*/true);
  }
};

}  // namespace

kernels::DeviceKernels& cuda_kernels() {
  static auto* const kernels = new LaunchedKernels<Card>;
  return *kernels;
}

}  // namespace headroom::cuda
