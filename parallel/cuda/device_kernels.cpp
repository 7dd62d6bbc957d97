#include "parallel/cuda/plugin_parts.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Tensor.h>
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
#include "parallel/cuda/kernel_arguments.h"
#include "parallel/cuda/kernels/launch.h"
#include "parallel/cuda/map_call.h"

namespace headroom::cuda {
namespace {

void check(int error) { C10_CUDA_CHECK(static_cast<cudaError_t>(error)); }

cudaStream_t own_stream() { return at::cuda::getCurrentCUDAStream().stream(); }

// Arrival counters for the blocks of the summing passes. Each stream has its
// own, because streams of one device may sum at the same time.
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

// Runs a MapCall on the current stream of the map's device.
class DeviceCall {
 public:
  DeviceCall(const at::Tensor& y, kernels::MapGroups groups)
      : guard_(y.device()),
        call_(y, groups,
              at::cuda::getCurrentDeviceProperties()->multiProcessorCount),
        options_(at::TensorOptions(y.device())
                     .dtype(y.scalar_type() == at::kDouble ? at::kDouble
                                                           : at::kFloat)) {}

  MapCall* operator->() { return &call_; }

  void write(int (*pass)(const BatchNormArguments*, void*)) {
    call_.run([&](const BatchNormArguments& arguments, const SumTargets&) {
      check(pass(&arguments, own_stream()));
    });
  }

  void sum(int (*pass)(const BatchNormArguments*, const SumTargets*, void*)) {
    call_.run([&](BatchNormArguments& arguments, SumTargets& targets) {
      const MemoryCategoryScope scope(MemoryCategory::kWorkspace);
      const at::Tensor partial =
          at::empty({partial_elements(arguments)}, options_);
      arguments.partial = partial.mutable_data_ptr();
      targets.arrivals = arrivals_of(own_stream());
      check(pass(&arguments, &targets, own_stream()));
    });
  }

 private:
  const c10::cuda::CUDAGuard guard_;
  MapCall call_;
  const at::TensorOptions options_;
};

void use_sums(const at::Tensor& sums, SumsCall& call) {
  const c10::cuda::CUDAGuard guard(sums.device());
  call.run([](const double* from, const SumTargets& targets, int groups,
              int64_t channels) {
    check(headroom_use_sums(from, &targets, groups, channels, own_stream()));
  });
}

class CudaKernels final : public devices::DeviceKernels {
 public:
  void channel_sums(const at::Tensor& y, kernels::MapGroups groups,
                    const at::Tensor& sums) override {
    DeviceCall call(y, groups);
    call->write_sums(sums);
    call.sum(headroom_channel_sums);
  }

  void batch_statistics(const at::Tensor& y, kernels::MapGroups groups,
                        double epsilon,
                        const kernels::StatisticsResult& result) override {
    DeviceCall call(y, groups);
    call->write_statistics(epsilon, result);
    call.sum(headroom_channel_sums);
  }

  void statistics_of_sums(const at::Tensor& sums, kernels::MapGroups groups,
                          double epsilon,
                          const kernels::StatisticsResult& result) override {
    SumsCall call(sums, groups);
    call.write_statistics(epsilon, result);
    use_sums(sums, call);
  }

  void normalise_and_activate(const at::Tensor& y, kernels::MapGroups groups,
                              const at::Tensor& statistics,
                              const at::Tensor& weight, const at::Tensor& bias,
                              const layers::ActivationFunction& activation,
                              const at::Tensor& out) override {
    DeviceCall call(y, groups);
    call->set_statistics(statistics);
    call->set_affine(weight, bias, activation);
    call->set_result(out);
    call.write(headroom_normalise_and_activate);
  }

  void activation_gradient_sums(
      const at::Tensor& y, const at::Tensor& dout, kernels::MapGroups groups,
      const at::Tensor& statistics, const at::Tensor& weight,
      const at::Tensor& bias, const layers::ActivationFunction& activation,
      const kernels::GradientSumsResult& result) override {
    DeviceCall call(y, groups);
    call->set_statistics(statistics);
    call->set_affine(weight, bias, activation);
    call->set_gradient(dout);
    call->write_gradients(result);
    call.sum(headroom_activation_gradient_sums);
  }

  void means_of_sums(const at::Tensor& sums, kernels::MapGroups groups,
                     const at::Tensor& means) override {
    SumsCall call(sums, groups);
    call.write_means(means);
    use_sums(sums, call);
  }

  void norm_gradient(const at::Tensor& y, const at::Tensor& dout,
                     kernels::MapGroups groups, const at::Tensor& statistics,
                     const at::Tensor& weight, const at::Tensor& bias,
                     const layers::ActivationFunction& activation,
                     const at::Tensor& means, const at::Tensor& dy) override {
    DeviceCall call(y, groups);
    call->set_statistics(statistics);
    call->set_affine(weight, bias, activation);
    call->set_gradient(dout);
    call->set_means(means);
    call->set_result(dy);
    call.write(headroom_norm_gradient);
  }

  void max_pool(const at::Tensor& x, int64_t window, const at::Tensor& out,
                const at::Tensor& choices) override {
    const c10::cuda::CUDAGuard guard(x.device());
    const PoolArguments arguments = pool_arguments(x, window, out, choices);
    check(headroom_max_pool(&arguments, own_stream()));
  }

  void max_pool_gradient(const at::Tensor& dout, const at::Tensor& choices,
                         int64_t window, const at::Tensor& dx) override {
    const c10::cuda::CUDAGuard guard(dx.device());
    const PoolArguments arguments =
        pool_gradient_arguments(dout, choices, window, dx);
    check(headroom_max_pool_gradient(&arguments, own_stream()));
  }

  void scale_images(const at::Tensor& images,
                    const at::Tensor& input) override {
    const c10::cuda::CUDAGuard guard(input.device());
    const ImageArguments arguments = image_arguments(images, input);
    check(headroom_scale_images(&arguments, own_stream()));
  }

  at::Tensor upload(const at::Tensor& host,
                    const c10::Device& device) override {
    at::Tensor there = at::empty(host.sizes(), host.options().device(device));
    upload_into(host, there);
    return there;
  }

  void upload_into(const at::Tensor& host, const at::Tensor& target) override {
    // Uses CUDA's own host allocator: pin_memory() would use that of the
    // process's accelerator, which may be another device. The page-locked copy
    // stays valid until the device has read it, because the allocator waits for
    // the stream before it reuses memory.
    HEADROOM_CHECK(host.is_contiguous() && host.is_cpu(),
                   "a tensor of the host that is not in one piece");
    at::HostAllocator* const pages = at::getHostAllocator(at::kCUDA);
    const c10::Storage storage(c10::Storage::use_byte_size_t(), host.nbytes(),
                               pages->allocate(host.nbytes()), pages,
                               /*resizable=*/false);
    const at::Tensor locked =
        at::empty({0}, host.options()).set_(storage, 0, host.sizes(), {});
    locked.copy_(host);
    target.copy_(locked, /*non_blocking=*/true);
  }

  void loss(const kernels::LossCall& call) override {
    const c10::cuda::CUDAGuard guard(call.targets.device());
    const LossArguments arguments = loss_arguments(call);
    C10_CUDA_CHECK(static_cast<cudaError_t>(
        headroom_loss(&arguments, at::cuda::getCurrentCUDAStream().stream())));
  }

  void loss_gradient(const kernels::LossCall& call) override {
    const c10::cuda::CUDAGuard guard(call.targets.device());
    const LossArguments arguments = loss_arguments(call);
    C10_CUDA_CHECK(static_cast<cudaError_t>(headroom_loss_gradient(
        &arguments, at::cuda::getCurrentCUDAStream().stream())));
  }

  std::unique_ptr<devices::DeviceOptimizer> make_optimizer(
      int device, std::span<const devices::FlatBufferRange> ranges,
      int64_t size) override {
    return make_cuda_optimizer(device, ranges, size);
  }

  void decide(const at::Tensor& partial, const at::Tensor& items,
              const devices::CommitPlace& place) override {
    const c10::cuda::CUDAGuard guard(items.device());
    const DecisionArguments arguments =
        decision_arguments(partial, items, place);
    check(headroom_decide(&arguments, own_stream()));
  }

  void move_running(const devices::RunningStatistics& statistics,
                    const devices::CommitPlace& place) override {
    const c10::cuda::CUDAGuard guard(statistics.values.device());
    const RunningArguments arguments = running_arguments(statistics, place);
    check(headroom_move_running(&arguments, own_stream()));
  }

  void render_samples(const at::Tensor& region, std::span<const int64_t> starts,
                      const at::Tensor& images) override {
    const c10::cuda::CUDAGuard guard(images.device());
    for (size_t first = 0; first < starts.size(); first += kMostRendered) {
      const RenderArguments arguments =
          render_arguments(region, starts, images, first);
      C10_CUDA_CHECK(static_cast<cudaError_t>(headroom_render_samples(
          &arguments, at::cuda::getCurrentCUDAStream().stream())));
    }
  }
};

}  // namespace

devices::DeviceKernels& cuda_kernels() {
  static auto* const kernels = new CudaKernels;
  return *kernels;
}

}  // namespace headroom::cuda
