#include "parallel/cuda/cuda_graph.h"

#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDAGuard.h>

namespace headroom {
namespace {

class CudaGraph final : public DeviceGraph {
 public:
  explicit CudaGraph(int device)
      : device_(static_cast<c10::DeviceIndex>(device)) {}

  void begin_capture(DeviceGraph* before) override {
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
    graph_.capture_end();
  }

  void replay() override {
    const c10::cuda::CUDAGuard guard(device_);
    graph_.replay();
  }

 private:
  const c10::DeviceIndex device_;
  at::cuda::CUDAGraph graph_;
};

}  // namespace

std::unique_ptr<DeviceGraph> make_cuda_graph(int device) {
  return std::make_unique<CudaGraph>(device);
}

}  // namespace headroom
