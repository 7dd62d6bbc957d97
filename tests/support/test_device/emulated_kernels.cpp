#include "tests/support/test_device/emulated_kernels.h"

#include <ATen/ops/empty_strided.h>
#include <ATen/ops/from_blob.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <memory>
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
#include "tests/support/test_device/page_locks.h"
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
  return tensor.defined() ? kernel_view(tensor).mutable_data_ptr<T>() : nullptr;
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
  do_or_remember(y.device(), [pass, map, arguments, shape]() mutable {
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
      : pieces_(std::make_shared<const Pieces>(
            cuda::flat_buffer_pieces(ranges, size))) {}

  void step(const devices::DeviceOptimizerStep& step,
            const at::Tensor& parameters, const at::Tensor& gradients,
            const at::Tensor& first, const at::Tensor& second,
            const at::Tensor& average) override {
    const auto run_as = [&](auto zero) {
      using T = decltype(zero);
      const cuda::FlatBufferArrays<T> arrays = {
          pointer<T>(parameters), pointer<T>(gradients), pointer<T>(first),
          pointer<T>(second), pointer<T>(average)};
      do_or_remember(
          parameters.device(),
          [pieces = pieces_, arrays,
           with = coefficients_of<T>(step, pointer<T>(step.clip)),
           is_adam = step.is_adam] { run<T>(*pieces, arrays, with, is_adam); });
    };
    if (parameters.scalar_type() == at::kFloat) {
      run_as(float());
    } else {
      run_as(double());
    }
  }

 private:
  using Pieces = std::vector<cuda::FlatBufferPiece>;

  template <typename T>
  static cuda::FlatBufferCoefficients<T> coefficients_of(
      const devices::DeviceOptimizerStep& step, T* clip) {
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
    with.clip = clip;
    return with;
  }

  template <typename T>
  static void run(const Pieces& pieces, const cuda::FlatBufferArrays<T>& arrays,
                  const cuda::FlatBufferCoefficients<T>& with, bool is_adam) {
    constexpr int kThreads = 256;
    for (const cuda::FlatBufferPiece& piece : pieces) {
      for (int thread = 0; thread < kThreads; ++thread) {
        if (is_adam) {
          cuda::update_piece<cuda::FlatBufferRule::kAdam>(arrays, with, piece,
                                                          thread, kThreads);
        } else {
          cuda::update_piece<cuda::FlatBufferRule::kSgd>(arrays, with, piece,
                                                         thread, kThreads);
        }
      }
    }
  }

  const std::shared_ptr<const Pieces> pieces_;
};

}  // namespace

void EmulatedKernels::channel_sums(const at::Tensor& y,
                                   std::span<const int64_t> begins,
                                   const at::Tensor& sums) {
  ++passes_;
  if (y.numel() == 0) sums.zero_();
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
  if (y.numel() == 0) sums.zero_();
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
  // As the plugin's: the copy's source is locked, and lives until it is read.
  const std::shared_ptr<void> pages =
      lock_test_pages(static_cast<int64_t>(host.nbytes()) + 1);
  const at::Tensor copy =
      at::from_blob(pages.get(), host.sizes(), host.strides(), host.options());
  copy.copy_(host);
  const at::Tensor placed = at::empty_strided(host.sizes(), host.strides(),
                                              host.options().device(device));
  do_or_remember(device,
                 [pages, copy, to = kernel_view(placed)] { to.copy_(copy); });
  return placed;
}

void EmulatedKernels::fit_rows(const at::Tensor& fields,
                               const at::Tensor& boxes,
                               const at::Tensor& anchors,
                               const at::Tensor& ciou,
                               const at::Tensor& gradient) {
  const cuda::FitArguments arguments = cuda::fit_arguments(
      kernel_view(fields), kernel_view(boxes), kernel_view(anchors),
      kernel_view(ciou), kernel_view(gradient));
  do_or_remember(fields.device(), [arguments] {
    for (int64_t row = 0; row < arguments.rows; ++row) {
      if (arguments.is_double) {
        cuda::fit_one_row<double>(arguments, row);
      } else {
        cuda::fit_one_row<float>(arguments, row);
      }
    }
  });
}

void EmulatedKernels::entropies(const at::Tensor& logits,
                                const at::Tensor& targets,
                                const kernels::EntropyRule& rule,
                                const at::Tensor& value,
                                const at::Tensor& derivative) {
  const cuda::EntropyArguments arguments =
      cuda::entropy_arguments(kernel_view(logits), kernel_view(targets), rule,
                              kernel_view(value), kernel_view(derivative));
  do_or_remember(logits.device(), [arguments] {
    for (int64_t i = 0; i < arguments.count; ++i) {
      if (arguments.is_double) {
        cuda::one_entropy<double>(arguments, i);
      } else {
        cuda::one_entropy<float>(arguments, i);
      }
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
        kernel_view(region), starts, kernel_view(images), first);
    do_or_remember(images.device(), [arguments] { render(arguments); });
  }
}

}  // namespace headroom
