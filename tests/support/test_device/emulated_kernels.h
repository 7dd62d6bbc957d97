// EmulatedKernels: the CUDA plugin's kernels, run on the CPU
// (tests/support/host_cuda): everything but the GPU itself.
//
// Tensors are the test device's, or the CPU's.
// Threads: any.
#pragma once

#include <atomic>

#include "parallel/devices/device_kernels.h"

namespace headroom {

class EmulatedKernels final : public devices::DeviceKernels {
 public:
  int passes() const { return passes_; }  // over maps, so far

  void channel_sums(const at::Tensor& y, kernels::MapGroups groups,
                    const at::Tensor& sums) override;
  void batch_statistics(const at::Tensor& y, kernels::MapGroups groups,
                        double epsilon,
                        const kernels::StatisticsResult& result) override;
  void statistics_of_sums(const at::Tensor& sums, kernels::MapGroups groups,
                          double epsilon,
                          const kernels::StatisticsResult& result) override;
  void normalise_and_activate(const at::Tensor& y, kernels::MapGroups groups,
                              const at::Tensor& statistics,
                              const at::Tensor& weight, const at::Tensor& bias,
                              const layers::ActivationFunction& activation,
                              const at::Tensor& out) override;
  void activation_gradient_sums(
      const at::Tensor& y, const at::Tensor& dout, kernels::MapGroups groups,
      const at::Tensor& statistics, const at::Tensor& weight,
      const at::Tensor& bias, const layers::ActivationFunction& activation,
      const kernels::GradientSumsResult& result) override;
  void means_of_sums(const at::Tensor& sums, kernels::MapGroups groups,
                     const at::Tensor& means) override;
  void norm_gradient(const at::Tensor& y, const at::Tensor& dout,
                     kernels::MapGroups groups, const at::Tensor& statistics,
                     const at::Tensor& weight, const at::Tensor& bias,
                     const layers::ActivationFunction& activation,
                     const at::Tensor& means, const at::Tensor& dy) override;

  void max_pool(const at::Tensor& x, int64_t window, const at::Tensor& out,
                const at::Tensor& choices) override;
  void max_pool_gradient(const at::Tensor& dout, const at::Tensor& choices,
                         int64_t window, const at::Tensor& dx) override;
  void scale_images(const at::Tensor& images, const at::Tensor& input) override;

  at::Tensor upload(const at::Tensor& host, const c10::Device& device) override;
  void upload_into(const at::Tensor& host, const at::Tensor& target) override;
  void loss(const kernels::LossCall& call) override;
  void loss_gradient(const kernels::LossCall& call) override;

  std::unique_ptr<devices::DeviceOptimizer> make_optimizer(
      int device, std::span<const devices::FlatBufferRange> ranges,
      int64_t size) override;
  void decide(const at::Tensor& partial, const at::Tensor& items,
              const devices::CommitPlace& place) override;
  void move_running(const devices::RunningStatistics& statistics,
                    const devices::CommitPlace& place) override;

  void render_samples(const at::Tensor& region, std::span<const int64_t> starts,
                      const at::Tensor& images) override;

 private:
  std::atomic<int> passes_{0};
};

}  // namespace headroom
