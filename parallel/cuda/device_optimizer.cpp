#include "parallel/cuda/plugin_parts.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/memory_category.h"
#include "parallel/cuda/kernel_arguments.h"

namespace headroom::cuda {
namespace {

class CudaOptimizer final : public devices::DeviceOptimizer {
 public:
  CudaOptimizer(int device, std::span<const devices::FlatBufferRange> ranges,
                int64_t size)
      : device_(at::kCUDA, static_cast<c10::DeviceIndex>(device)), size_(size) {
    check_cuda_device(device);
    const std::vector<FlatBufferPiece> pieces =
        flat_buffer_pieces(ranges, size);
    num_pieces_ = static_cast<int64_t>(pieces.size());
    const auto bytes =
        static_cast<int64_t>(pieces.size() * sizeof(FlatBufferPiece));
    const c10::cuda::CUDAGuard guard(device_);
    const MemoryCategoryScope scope(MemoryCategory::kWorkspace);
    pieces_ = at::empty({bytes}, at::TensorOptions(at::kByte).device(device_));
    const cudaStream_t stream = at::cuda::getCurrentCUDAStream();
    C10_CUDA_CHECK(cudaMemcpyAsync(pieces_.mutable_data_ptr(), pieces.data(),
                                   static_cast<size_t>(bytes),
                                   cudaMemcpyHostToDevice, stream));
    // Wait, because `pieces` is destroyed at the end of this function.
    C10_CUDA_CHECK(cudaStreamSynchronize(stream));
  }

  int64_t num_partial() const override { return num_pieces_; }

  void squares(const devices::FlatBuffers& buffers,
               const devices::CommitPlace& place,
               const at::Tensor& partial) override {
    HEADROOM_CHECK(partial.numel() == num_pieces_ && partial.is_contiguous() &&
                       partial.scalar_type() == at::kDouble &&
                       partial.device() == device_,
                   "partial sums lie on the device, one for each piece");
    launch(buffers, place, partial.mutable_data_ptr<double>(),
           headroom_gradient_squares);
  }

  void commit(const devices::FlatBuffers& buffers,
              const devices::CommitPlace& place) override {
    launch(buffers, place, /*partial=*/nullptr, headroom_commit);
  }

 private:
  void launch(const devices::FlatBuffers& buffers,
              const devices::CommitPlace& place, double* partial,
              int (*kernel)(const FlatBufferArguments*, void*)) const {
    HEADROOM_CHECK(buffers.parameters.device() == device_,
                   "a flat buffer on another device");
    const c10::cuda::CUDAGuard guard(device_);
    FlatBufferArguments arguments =
        flat_buffer_arguments(buffers, place, size_);
    arguments.pieces =
        static_cast<const FlatBufferPiece*>(pieces_.const_data_ptr());
    arguments.num_pieces = num_pieces_;
    arguments.partial = partial;
    C10_CUDA_CHECK(static_cast<cudaError_t>(
        kernel(&arguments, at::cuda::getCurrentCUDAStream().stream())));
  }

  const at::Device device_;
  const int64_t size_;
  int64_t num_pieces_ = 0;
  at::Tensor pieces_;
};

}  // namespace

std::unique_ptr<devices::DeviceOptimizer> make_cuda_optimizer(
    int device, std::span<const devices::FlatBufferRange> ranges,
    int64_t size) {
  return std::make_unique<CudaOptimizer>(device, ranges, size);
}

}  // namespace headroom::cuda
