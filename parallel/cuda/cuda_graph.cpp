#include "parallel/cuda/plugin_parts.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

namespace headroom::cuda {
namespace {

// A graph takes memory of its own, outside the caching allocator.
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

class CudaGraph final : public devices::DeviceGraph {
 public:
  explicit CudaGraph(int device)
      : device_(static_cast<c10::DeviceIndex>(device)) {}

  void begin_capture(devices::DeviceGraph* before) override {
    const c10::cuda::CUDAGuard guard(device_);
    const at::cuda::MempoolId_t own = {0, 0};
    // Other threads may go on: the loader locks pages, NCCL is watched.
    graph_.capture_begin(before == nullptr
                             ? own
                             : static_cast<CudaGraph*>(before)->graph_.pool(),
                         cudaStreamCaptureModeThreadLocal);
  }

  void end_capture() override {
    const c10::cuda::CUDAGuard guard(device_);
    or_out_of_memory([this] { graph_.capture_end(); });
  }

  void replay() override {
    const c10::cuda::CUDAGuard guard(device_);
    or_out_of_memory([this] { graph_.replay(); });
  }

 private:
  const c10::DeviceIndex device_;
  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<devices::DeviceGraph> make_cuda_graph(int device) {
  return std::make_unique<CudaGraph>(device);
}

}  // namespace headroom::cuda
