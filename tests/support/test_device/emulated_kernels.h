// EmulatedKernels: the kernels of the CUDA plugin, run on the CPU
// (tests/support/host_cuda). This tests everything but the GPU itself.
//
// Tensors are on the test device or on the CPU. A launch runs at once, or is
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
  static kernels::PlaceLossCall operand(kernels::PlaceLossCall call);
  static kernels::FlatBuffers operand(kernels::FlatBuffers buffers);
  static kernels::CommitPlace operand(kernels::CommitPlace place);
  static kernels::RunningStatistics operand(
      kernels::RunningStatistics statistics);

  // This number is small, so that the grid of a small map has several blocks
  // and the tests are quick.
  static int multiprocessors(const c10::Device&) { return 2; }

  template <typename Work>
  static void launch(const cuda::Launch& launch, Work work) {
    count_launch(launch.name, launch.kernels);
    do_or_remember(launch.device, [work,
                                   bytes = launch.partial_bytes]() mutable {
      // A buffer of doubles is aligned for floats too.
      std::vector<double> partial(static_cast<size_t>(bytes) / sizeof(double) +
                                  1);
      std::vector<unsigned> arrivals(cuda::kMostTiles);
      check(work(cuda::LaunchPlace{nullptr, partial.data(), arrivals.data()}));
    });
  }

  // As in the plugin, the source of the copy is page-locked and stays allocated
  // until it has been read.
  static void copy(const at::Tensor& host, const at::Tensor& target);

 private:
  static void check(int error);
};

using EmulatedKernels = cuda::LaunchedKernels<EmulatedDevice>;

}  // namespace headroom
