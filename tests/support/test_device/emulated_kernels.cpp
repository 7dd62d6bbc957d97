#include "tests/support/test_device/emulated_kernels.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <type_traits>
#include <utility>
#include <vector>

#include "parallel/cuda/kernel_arguments.h"
#include "parallel/cuda/kernels/flat_buffer_body.h"
#include "parallel/cuda/kernels/flat_buffer_pieces.h"
#include "parallel/cuda/kernels/loss_body.h"
#include "parallel/cuda/kernels/render_body.h"
#include "tests/parallel/cuda/emulated_launch.h"
#include "tests/support/test_device/operators.h"
#include "tests/support/test_device/streams.h"
#include "tests/support/test_device/test_graph.h"

namespace headroom {
namespace {

struct Operands {
  at::Tensor statistics, weight, bias, gradient, means, result;
  layers::ActivationFunction activation = {};
};

template <typename Map>
using Element =
    std::remove_cv_t<std::remove_pointer_t<decltype(std::declval<Map>().y)>>;

template <typename T>
T* pointer(const at::Tensor& tensor) {
  return tensor.defined() ? reachable(tensor).mutable_data_ptr<T>() : nullptr;
}

template <typename T, typename Pass>
void run_as(cuda::ElementType type, const at::Tensor& y,
            std::span<const int64_t> begins, const Operands& operands,
            const Pass& pass) {
  if (y.numel() == 0) return;
  cuda::BatchNormMap<T> map = {};
  map.y = pointer<T>(y);
  map.gradient = pointer<T>(operands.gradient);
  map.gradient_stride =
      operands.gradient.defined() ? operands.gradient.stride(3) : 0;
  if (map.gradient_stride < y.size(1)) map.gradient_stride = y.size(1);
  map.result = pointer<T>(operands.result);
  map.statistics = pointer<double>(operands.statistics);
  map.weight = pointer<cuda::Accumulator<T>>(operands.weight);
  map.bias = pointer<cuda::Accumulator<T>>(operands.bias);
  map.means = pointer<double>(operands.means);
  map.activation = operands.activation;
  map.channels = y.size(1);
  map.groups.count = static_cast<int>(begins.size()) - 1;
  for (size_t g = 0; g < begins.size(); ++g) {
    map.groups.begin[g] = begins[g] * y.size(2) * y.size(3);
  }
  cuda::BatchNormArguments arguments;
  arguments.type = type;
  arguments.y = map.y;
  arguments.gradient = map.gradient;
  arguments.gradient_stride = map.gradient_stride;
  arguments.result = map.result;
  arguments.groups = map.groups;
  arguments.channels = map.channels;
  const cuda::BlockShape shape = cuda::block_shape(arguments);
  map.chunks = cuda::chunks_of(map.groups, shape);
  do_or_remember([pass, map, arguments, shape]() mutable {
    std::vector<cuda::Accumulator<T>> partial(
        cuda::partial_elements(arguments));
    map.partial = partial.data();
    constexpr int kWide = 16 / sizeof(T);
    if (shape.vector == kWide) {
      pass(std::integral_constant<int, kWide>(), shape, map);
    } else {
      pass(std::integral_constant<int, 1>(), shape, map);
    }
  });
}

template <typename Pass>
void run(const at::Tensor& y, std::span<const int64_t> begins,
         const Operands& operands, const Pass& pass) {
  switch (y.scalar_type()) {
    case at::kFloat:
      return run_as<float>(cuda::ElementType::kFloat32, y, begins, operands,
                           pass);
    case at::kBFloat16:
      return run_as<c10::BFloat16>(cuda::ElementType::kBFloat16, y, begins,
                                   operands, pass);
    case at::kHalf:
      return run_as<c10::Half>(cuda::ElementType::kFloat16, y, begins, operands,
                               pass);
    default:
      return run_as<double>(cuda::ElementType::kFloat64, y, begins, operands,
                            pass);
  }
}

// As render_kernel of render_samples.cu.
void render(const cuda::RenderArguments& arguments) {
  for (int index = 0; index < arguments.count; ++index) {
    for (int row = 0; row < arguments.rows; ++row) {
      for (int column = 0; column < arguments.width; ++column) {
        cuda::render_pixel(arguments, index, row, column);
      }
    }
  }
}

// As run_piece of flat_buffer_step.cu.
class EmulatedOptimizer final : public devices::DeviceOptimizer {
 public:
  EmulatedOptimizer(std::span<const devices::FlatBufferRange> ranges,
                    int64_t size)
      : pieces_(cuda::flat_buffer_pieces(ranges, size)) {}

  void step(const devices::DeviceOptimizerStep& step,
            const at::Tensor& parameters, const at::Tensor& gradients,
            const at::Tensor& first, const at::Tensor& second,
            const at::Tensor& average) override {
    const auto run_as = [&](auto zero) {
      using T = decltype(zero);
      const cuda::FlatBufferArrays<T> arrays = {
          pointer<T>(parameters), pointer<T>(gradients), pointer<T>(first),
          pointer<T>(second), pointer<T>(average)};
      run<T>(arrays, step);
    };
    if (parameters.scalar_type() == at::kFloat) {
      run_as(float());
    } else {
      run_as(double());
    }
  }

 private:
  template <typename T>
  void run(const cuda::FlatBufferArrays<T>& arrays,
           const devices::DeviceOptimizerStep& step) {
    cuda::FlatBufferCoefficients<T> with;
    const auto as = [](double value) { return static_cast<T>(value); };
    for (size_t g = 0; g < cuda::kFlatBufferGroups; ++g) {
      const kernels::SgdCoefficients<double>& sgd = step.sgd[g];
      with.sgd[g] = {as(sgd.lr), as(sgd.weight_decay), as(sgd.momentum),
                     as(sgd.clip), sgd.first_step};
      const kernels::AdamCoefficients<double>& adam = step.adam[g];
      with.adam[g] = {as(adam.step_size),
                      as(adam.root_of_correction),
                      as(adam.one_minus_beta1),
                      as(adam.beta2),
                      as(adam.one_minus_beta2),
                      as(adam.epsilon),
                      as(adam.clip),
                      as(adam.weight_decay),
                      as(adam.shrink)};
    }
    with.average_weight = as(step.average_weight);
    with.clip = pointer<T>(step.clip);
    constexpr int kThreads = 256;
    for (const cuda::FlatBufferPiece& piece : pieces_) {
      for (int thread = 0; thread < kThreads; ++thread) {
        if (step.is_adam) {
          cuda::update_piece<cuda::FlatBufferRule::kAdam>(arrays, with, piece,
                                                          thread, kThreads);
        } else {
          cuda::update_piece<cuda::FlatBufferRule::kSgd>(arrays, with, piece,
                                                         thread, kThreads);
        }
      }
    }
  }

  const std::vector<cuda::FlatBufferPiece> pieces_;
};

kernels::LossCall reachable_call(kernels::LossCall call) {
  for (kernels::LossCall::Level& level : call.levels) {
    for (at::Tensor* const tensor :
         {&level.head, &level.objectness, &level.classes, &level.fit,
          &level.gradient}) {
      *tensor = reachable(*tensor);
    }
  }
  for (at::Tensor* const tensor : {&call.targets, &call.scales, &call.partial,
                                   &call.items, &call.total, &call.by_total}) {
    *tensor = reachable(*tensor);
  }
  return call;
}

// As loss_kernel and finish_kernel of loss_passes.cu.
template <typename T>
void run_loss(const cuda::LossArguments& a) {
  constexpr int64_t kWarps = cuda::kLossThreads / cuda::kLanes;
  for (int number = 0; number < a.num_levels; ++number) {
    const cuda::LossLevel& level = a.levels[number];
    for (int64_t block = 0; block < a.blocks; ++block) {
      cuda::LossSums of_part[cuda::kLossParts];
      const int64_t threads = a.blocks * cuda::kLossThreads;
      for (int64_t thread = 0; thread < cuda::kLossThreads; ++thread) {
        for (int64_t cell = block * cuda::kLossThreads + thread;
             cell < level.num_cells; cell += threads) {
          of_part[0].of[1] += cuda::cell_loss<T>(a, level, cell);
        }
      }
      for (int64_t warp = 0; warp < kWarps; ++warp) {
        for (int64_t match = block * kWarps + warp; match < *level.num_matches;
             match += a.blocks * kWarps) {
          for (int lane = 0; lane < cuda::kLanes; ++lane) {
            const cuda::LossSums one =
                cuda::match_loss<T>(a, level, match, lane);
            for (int item = 0; item < cuda::kLossSums; ++item) {
              of_part[1].of[item] += one.of[item];
            }
          }
        }
      }
      for (int part = 0; part < cuda::kLossParts; ++part) {
        double* const to =
            a.partial +
            ((number * cuda::kLossParts + part) * a.blocks + block) *
                cuda::kLossSums;
        std::copy_n(of_part[part].of, cuda::kLossSums, to);
      }
    }
  }
  double sums[cuda::kLossLevels * cuda::kLossSums] = {};
  for (int i = 0; i < a.num_levels * cuda::kLossSums; ++i) {
    for (int lane = 0; lane < cuda::kLanes; ++lane) {
      sums[i] +=
          cuda::level_sum(a, i / cuda::kLossSums, i % cuda::kLossSums, lane);
    }
  }
  cuda::write_loss(a, sums);
}

// As cell_gradient_kernel and match_gradient_kernel.
template <typename T>
void run_loss_gradient(const cuda::LossArguments& a) {
  for (int number = 0; number < a.num_levels; ++number) {
    const cuda::LossLevel& level = a.levels[number];
    for (int lane = 0; lane < cuda::kLanes; ++lane) {
      for (int64_t cell = 0; cell < level.num_cells; ++cell) {
        cuda::cell_gradient<T>(a, number, cell, lane);
      }
      for (int64_t match = 0; match < *level.num_matches; ++match) {
        cuda::match_gradient<T>(a, number, match, lane);
      }
    }
  }
}

}  // namespace

void EmulatedKernels::channel_sums(const at::Tensor& y,
                                   std::span<const int64_t> begins,
                                   const at::Tensor& sums) {
  ++passes_;
  if (y.numel() == 0) reachable(sums).zero_();
  double* const to = pointer<double>(sums);
  run(y, begins, {}, [to](auto width, auto& shape, auto& map) {
    using T = Element<decltype(map)>;
    cuda::summing_pass<T, width, false>(shape, map, to);
  });
}

void EmulatedKernels::normalise_and_activate(
    const at::Tensor& y, std::span<const int64_t> begins,
    const at::Tensor& statistics, const at::Tensor& weight,
    const at::Tensor& bias, const layers::ActivationFunction& activation,
    const at::Tensor& out) {
  ++passes_;
  run(y, begins, {statistics, weight, bias, {}, {}, out, activation},
      [](auto width, auto& shape, auto& map) {
        using T = Element<decltype(map)>;
        cuda::writing_pass<T, width, false>(shape, map);
      });
}

void EmulatedKernels::activation_gradient_sums(
    const at::Tensor& y, const at::Tensor& dout,
    std::span<const int64_t> begins, const at::Tensor& statistics,
    const at::Tensor& weight, const at::Tensor& bias,
    const layers::ActivationFunction& activation, const at::Tensor& sums) {
  ++passes_;
  if (y.numel() == 0) reachable(sums).zero_();
  double* const to = pointer<double>(sums);
  run(y, begins, {statistics, weight, bias, dout, {}, {}, activation},
      [to](auto width, auto& shape, auto& map) {
        using T = Element<decltype(map)>;
        cuda::summing_pass<T, width, true>(shape, map, to);
      });
}

void EmulatedKernels::norm_gradient(
    const at::Tensor& y, const at::Tensor& dout,
    std::span<const int64_t> begins, const at::Tensor& statistics,
    const at::Tensor& weight, const at::Tensor& bias,
    const layers::ActivationFunction& activation, const at::Tensor& means,
    const at::Tensor& dy) {
  ++passes_;
  run(y, begins, {statistics, weight, bias, dout, means, dy, activation},
      [](auto width, auto& shape, auto& map) {
        using T = Element<decltype(map)>;
        cuda::writing_pass<T, width, true>(shape, map);
      });
}

at::Tensor EmulatedKernels::upload(const at::Tensor& host,
                                   const c10::Device& device) {
  return host.to(device);
}

void EmulatedKernels::loss(const kernels::LossCall& call) {
  do_or_remember([arguments = cuda::loss_arguments(reachable_call(call))] {
    if (arguments.is_double) {
      run_loss<double>(arguments);
    } else {
      run_loss<float>(arguments);
    }
  });
}

void EmulatedKernels::loss_gradient(const kernels::LossCall& call) {
  do_or_remember([arguments = cuda::loss_arguments(reachable_call(call))] {
    if (arguments.is_double) {
      run_loss_gradient<double>(arguments);
    } else {
      run_loss_gradient<float>(arguments);
    }
  });
}

std::unique_ptr<devices::DeviceOptimizer> EmulatedKernels::make_optimizer(
    int, std::span<const devices::FlatBufferRange> ranges, int64_t size) {
  return std::make_unique<EmulatedOptimizer>(ranges, size);
}

void EmulatedKernels::render_samples(const at::Tensor& region,
                                     std::span<const int64_t> starts,
                                     const at::Tensor& images) {
  for (size_t first = 0; first < starts.size(); first += cuda::kMostRendered) {
    const cuda::RenderArguments arguments = cuda::render_arguments(
        reachable(region), starts, reachable(images), first);
    TestStreams& streams = TestStreams::instance();
    streams.give(streams.current(images.device()),
                 [arguments] { render(arguments); });
  }
}

}  // namespace headroom
