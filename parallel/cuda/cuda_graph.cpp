#include "parallel/cuda/plugin_parts.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <exception>
#include <utility>

namespace headroom::cuda {
namespace {

// Runs `call`. A CUDA graph allocates its own device memory, outside the
// caching allocator; if that fails, throws c10::OutOfMemoryError.
template <typename Call>
void or_out_of_memory(const Call& call) {
  try {
    call();
  } catch (const c10::AcceleratorError& error) {
    if (error.get_error_code() != cudaErrorMemoryAllocation) throw;
    static_cast<void>(cudaGetLastError());
    C10_THROW_ERROR(OutOfMemoryError, "the device has no memory for a graph");
  }
}

// LibTorch stops allocating in a graph's pool, and frees the pool with the
// graph, only if CUDA ended the capture successfully (has_ended()).
class Graph : public at::cuda::CUDAGraph {
 public:
  bool has_ended() const { return capture_ended_; }
};

// Returns false if the call threw.
template <typename Call>
bool succeeds(const Call& call) noexcept {
  try {
    call();
    return true;
  } catch (const std::exception&) {
    return false;
  }
}

class CudaGraph final : public devices::DeviceGraph {
 public:
  explicit CudaGraph(int device)
      : device_(static_cast<c10::DeviceIndex>(device)) {}

  // The pool is created first, so that it can be released if the capture fails.
  void begin_capture(devices::DeviceGraph* before) override {
    const c10::cuda::CUDAGuard guard(device_);
    pool_ = before == nullptr ? at::cuda::graph_pool_handle()
                              : static_cast<CudaGraph*>(before)->pool_;
    try {
      // Thread-local mode lets other threads call CUDA: the loader page-locks
      // memory, and the watch thread checks NCCL.
      graph_.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    } catch (const std::exception&) {
      if (succeeds([this] { end_allocation(); })) release_pool();
      throw;
    }
    is_capturing_ = true;
  }

  void end_capture() override {
    const c10::cuda::CUDAGuard guard(device_);
    or_out_of_memory([this] { graph_.capture_end(); });
    is_capturing_ = false;
  }

  void abandon_capture() noexcept override {
    if (!std::exchange(is_capturing_, false)) return;
    const c10::cuda::CUDAGuard guard(device_);
    // Ends the capture if end_capture() was not called. This fails too if
    // end_capture() failed.
    if (!graph_.has_ended()) succeeds([this] { graph_.capture_end(); });
    static_cast<void>(cudaGetLastError());
    if (graph_.has_ended()) return;
    succeeds([this] { end_allocation(); });
    release_pool();
  }

  void replay() override {
    const c10::cuda::CUDAGuard guard(device_);
    or_out_of_memory([this] { graph_.replay(); });
  }

 private:
  void end_allocation() const {
    c10::cuda::CUDACachingAllocator::endAllocateToPool(device_, pool_);
  }
  void release_pool() const noexcept {
    succeeds([this] {
      c10::cuda::CUDACachingAllocator::releasePool(device_, pool_);
    });
  }

  const c10::DeviceIndex device_;
  at::cuda::MempoolId_t pool_ = {0, 0};
  bool is_capturing_ = false;
  Graph graph_;
};

}  // namespace

std::unique_ptr<devices::DeviceGraph> make_cuda_graph(int device) {
  return std::make_unique<CudaGraph>(device);
}

}  // namespace headroom::cuda
