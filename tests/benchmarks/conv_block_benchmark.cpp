// Compares the convolution block with LibTorch's own operators (convolution,
// batch norm, SiLU in place, channels-last): forward and backward on one
// thread, for the shapes of yolov5n at images of 160 and 320 px.
//
// Both run in turn within one iteration, so that other load on the machine
// slows both down; "speedup" is the median of the ratios of the pairs.
#include <ATen/Context.h>
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/batch_norm.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/silu.h>
#include <ATen/ops/zeros.h>
#include <benchmark/benchmark.h>

#include <vector>

#include "tests/benchmarks/measures.h"
#include "worker/kernels/cpu/heap.h"
#include "worker/model/conv_block.h"

namespace headroom {
namespace {

constexpr int64_t kSamples = 16;

at::Tensor with_operators(const model::ConvBlockArguments& a) {
  at::Tensor y = at::conv2d(a.x, a.weight, {}, a.stride, a.padding);
  y = at::batch_norm(y, a.norm_weight, a.norm_bias, a.running_mean,
                     a.running_var, true, model::kBatchNormMomentum,
                     model::kBatchNormEpsilon, false);
  return at::silu_(y);
}

template <typename Forward>
double seconds_of_step(const model::ConvBlockArguments& arguments,
                       const at::Tensor& dout, const Forward& forward) {
  const double seconds = seconds_of([&] { forward(arguments).backward(dout); });
  for (at::Tensor leaf : {arguments.x, arguments.weight, arguments.norm_weight,
                          arguments.norm_bias})
    leaf.mutable_grad().reset();
  return seconds;
}

// Arguments: channels in and out, kernel, stride, height and width of the
// output.
void conv_block_step(benchmark::State& state) {
  const int64_t channels_in = state.range(0), channels_out = state.range(1),
                kernel = state.range(2), stride = state.range(3),
                extent = state.range(4);
  const auto channels_last = at::MemoryFormat::ChannelsLast;
  at::manual_seed(0);
  model::ConvBlockArguments arguments;
  arguments.stride = stride;
  arguments.padding = kernel == 6 ? 2 : kernel / 2;
  arguments.x =
      at::randn({kSamples, channels_in, extent * stride, extent * stride})
          .contiguous(channels_last);
  // The first layer reads an image, which needs no gradient.
  arguments.x.requires_grad_(channels_in > 3);
  arguments.weight = at::randn({channels_out, channels_in, kernel, kernel})
                         .contiguous(channels_last)
                         .requires_grad_();
  arguments.norm_weight = at::ones({channels_out}).requires_grad_();
  arguments.norm_bias = at::zeros({channels_out}).requires_grad_();
  arguments.running_mean = at::zeros({channels_out});
  arguments.running_var = at::ones({channels_out});
  const at::Tensor dout = at::randn({kSamples, channels_out, extent, extent})
                              .contiguous(channels_last);
  model::StepContext context;
  context.training = true;
  context.groups = {{0, kSamples, kSamples, true}};
  const auto block = [&](const model::ConvBlockArguments& a) {
    return model::conv_block(a, context);
  };

  std::vector<double> ratios;
  for (auto _ : state) {
    const double operators = seconds_of_step(arguments, dout, with_operators);
    const double ours = seconds_of_step(arguments, dout, block);
    ratios.push_back(operators / ours);
    state.SetIterationTime(ours);
  }
  state.counters["speedup"] = median(ratios);
}

void yolov5n_shapes(benchmark::internal::Benchmark* benchmark) {
  benchmark->ArgNames({"in", "out", "kernel", "stride", "extent"});
  for (int64_t scale : {1, 2}) {  // 160 and 320 px
    benchmark->Args({3, 16, 6, 2, 80 * scale});
    benchmark->Args({16, 32, 3, 2, 40 * scale});
    benchmark->Args({32, 16, 1, 1, 40 * scale});
    benchmark->Args({16, 16, 3, 1, 40 * scale});
    benchmark->Args({32, 32, 1, 1, 40 * scale});
    benchmark->Args({32, 64, 3, 2, 20 * scale});
    benchmark->Args({64, 32, 1, 1, 20 * scale});
    benchmark->Args({32, 32, 3, 1, 20 * scale});
    benchmark->Args({64, 64, 1, 1, 20 * scale});
    benchmark->Args({64, 128, 3, 2, 10 * scale});
    benchmark->Args({64, 64, 3, 1, 10 * scale});
    benchmark->Args({128, 128, 1, 1, 10 * scale});
    benchmark->Args({128, 256, 3, 2, 5 * scale});
    benchmark->Args({128, 128, 3, 1, 5 * scale});
    benchmark->Args({256, 256, 1, 1, 5 * scale});
  }
}

BENCHMARK(conv_block_step)
    ->Apply(yolov5n_shapes)
    ->UseManualTime()
    ->Iterations(100)
    ->Unit(benchmark::kMicrosecond);

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  headroom::kernels::keep_freed_memory();
  at::set_num_threads(1);
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::RunSpecifiedBenchmarks();
}
