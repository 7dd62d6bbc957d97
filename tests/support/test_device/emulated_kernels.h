// EmulatedKernels: the CUDA plugin's kernels, run on the CPU
// (tests/support/host_cuda): everything but the GPU itself.
//
// Tensors are the test device's, or the CPU's. Launches run at once, or are
// recorded if the thread captures a graph.
// Threads: any.
#pragma once

#include <vector>

#include "parallel/cuda/launched_kernels.h"
#include "tests/support/test_device/launch_count.h"
#include "tests/support/test_device/test_graph.h"

namespace headroom {

struct EmulatedDevice {
  static at::Tensor operand(const at::Tensor& tensor);
  static kernels::StatisticsResult operand(kernels::StatisticsResult result);
  static kernels::GradientSumsResult operand(
      kernels::GradientSumsResult result);
  static kernels::LossCall operand(kernels::LossCall call);
  static kernels::FlatBuffers operand(kernels::FlatBuffers buffers);
  static kernels::CommitPlace operand(kernels::CommitPlace place);
  static kernels::RunningStatistics operand(
      kernels::RunningStatistics statistics);

  // So few that a small map's grid has several blocks, and its tests are quick.
  static int multiprocessors(const c10::Device&) { return 2; }

  template <typename Work>
  static void launch(const cuda::Launch& launch, Work work) {
    count_launch(launch.name, launch.kernels);
    do_or_remember(launch.device, [work,
                                   bytes = launch.partial_bytes]() mutable {
      // Doubles are aligned for either type.
      std::vector<double> partial(static_cast<size_t>(bytes) / sizeof(double) +
                                  1);
      std::vector<unsigned> arrivals(cuda::kMostTiles);
      check(work(cuda::LaunchPlace{nullptr, partial.data(), arrivals.data()}));
    });
  }

  // As in the plugin: the copy's source is page-locked, and lives until it is
  // read.
  static void copy(const at::Tensor& host, const at::Tensor& target);

 private:
  static void check(int error);
};

using EmulatedKernels = cuda::LaunchedKernels<EmulatedDevice>;

}  // namespace headroom
