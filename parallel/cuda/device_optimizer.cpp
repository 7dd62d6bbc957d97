#include "parallel/cuda/plugin_parts.h"

#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>
#include <cuda_runtime_api.h>

#include <string>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/memory_category.h"
#include "parallel/cuda/kernels/flat_buffer_pieces.h"

namespace headroom::cuda {
namespace {

// As worker/optim rounds them: every product in double, then to the flat
// buffer's type.
template <typename T>
kernels::SgdCoefficients<T> rounded(const kernels::SgdCoefficients<double>& c) {
  return {static_cast<T>(c.lr), static_cast<T>(c.weight_decay),
          static_cast<T>(c.momentum), static_cast<T>(c.clip), c.first_step};
}

template <typename T>
kernels::AdamCoefficients<T> rounded(
    const kernels::AdamCoefficients<double>& c) {
  kernels::AdamCoefficients<T> result;
  result.step_size = static_cast<T>(c.step_size);
  result.root_of_correction = static_cast<T>(c.root_of_correction);
  result.one_minus_beta1 = static_cast<T>(c.one_minus_beta1);
  result.beta2 = static_cast<T>(c.beta2);
  result.one_minus_beta2 = static_cast<T>(c.one_minus_beta2);
  result.epsilon = static_cast<T>(c.epsilon);
  result.clip = static_cast<T>(c.clip);
  result.weight_decay = static_cast<T>(c.weight_decay);
  result.shrink = static_cast<T>(c.shrink);
  return result;
}

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
    // `pieces` ends here.
    C10_CUDA_CHECK(cudaStreamSynchronize(stream));
  }

  void step(const devices::DeviceOptimizerStep& step,
            const at::Tensor& parameters, const at::Tensor& gradients,
            const at::Tensor& first, const at::Tensor& second,
            const at::Tensor& average) override {
    HEADROOM_CHECK(second.defined() == step.is_adam,
                   "Adam has two moments, SGD one");
    if (parameters.scalar_type() == at::kFloat) {
      run<float>(step, parameters, gradients, first, second, average,
                 headroom_flat_buffer_step_float);
    } else {
      run<double>(step, parameters, gradients, first, second, average,
                  headroom_flat_buffer_step_double);
    }
  }

 private:
  template <typename T>
  T* elements(const at::Tensor& tensor, const char* name) const {
    HEADROOM_CHECK(tensor.dim() == 1 && tensor.numel() == size_ &&
                       tensor.is_contiguous() && tensor.device() == device_,
                   std::string(name) + " is no flat tensor of " +
                       std::to_string(size_) + " elements on the device");
    return tensor.mutable_data_ptr<T>();
  }

  template <typename T, typename Launch>
  void run(const devices::DeviceOptimizerStep& step,
           const at::Tensor& parameters, const at::Tensor& gradients,
           const at::Tensor& first, const at::Tensor& second,
           const at::Tensor& average, const Launch& launch) {
    const c10::cuda::CUDAGuard guard(device_);
    FlatBufferArrays<T> arrays;
    arrays.parameters = elements<T>(parameters, "parameters");
    arrays.gradients = elements<T>(gradients, "gradients");
    arrays.first_moment = elements<T>(first, "first moment");
    if (second.defined()) {
      arrays.second_moment = elements<T>(second, "second moment");
    }
    if (average.defined()) arrays.average = elements<T>(average, "average");
    FlatBufferCoefficients<T> coefficients;
    for (int group = 0; group < kFlatBufferGroups; ++group) {
      const auto i = static_cast<size_t>(group);
      coefficients.sgd[group] = rounded<T>(step.sgd[i]);
      coefficients.adam[group] = rounded<T>(step.adam[i]);
    }
    coefficients.average_weight = static_cast<T>(step.average_weight);
    if (step.clip.defined()) {
      HEADROOM_CHECK(step.clip.numel() == 1 && step.clip.device() == device_,
                     "the clip coefficient is one element on the device");
      coefficients.clip = step.clip.const_data_ptr<T>();
    }
    C10_CUDA_CHECK(static_cast<cudaError_t>(
        launch(step.is_adam ? FlatBufferRule::kAdam : FlatBufferRule::kSgd,
               &arrays, &coefficients,
               static_cast<const FlatBufferPiece*>(pieces_.const_data_ptr()),
               num_pieces_, at::cuda::getCurrentCUDAStream().stream())));
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
