#include "parallel/cuda/plugin_parts.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/core/Tensor.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/set.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAGuard.h>

#include <string>

#include "parallel/base/check.h"
#include "parallel/base/memory_category.h"
#include "parallel/cuda/kernel_arguments.h"
#include "parallel/cuda/kernels/launch.h"

namespace headroom::cuda {
namespace {

std::string shape_text(const at::Tensor& tensor) {
  std::string text;
  for (const int64_t size : tensor.sizes()) {
    text += (text.empty() ? "[" : ", ") + std::to_string(size);
  }
  return text + "]";
}

ElementType type_of(const at::Tensor& map) {
  switch (map.scalar_type()) {
    case at::kDouble:
      return ElementType::kFloat64;
    case at::kFloat:
      return ElementType::kFloat32;
    case at::kBFloat16:
      return ElementType::kBFloat16;
    case at::kHalf:
      return ElementType::kFloat16;
    default:
      HEADROOM_CHECK(
          false, std::string("a map of ") + c10::toString(map.scalar_type()));
  }
}

bool is_channels_last(const at::Tensor& map) {
  return map.dim() == 4 && map.is_contiguous(at::MemoryFormat::ChannelsLast);
}

// Elements from one pixel to the next of a channels-last map, or of a slice of
// its channels.
int64_t pixel_stride(const at::Tensor& map) {
  const int64_t stride = map.size(3) > 1   ? map.stride(3)
                         : map.size(2) > 1 ? map.stride(2)
                         : map.size(0) > 1 ? map.stride(0)
                                           : map.size(1);
  const bool is_slice =
      (map.size(1) == 1 || map.stride(1) == 1) &&
      (map.size(3) == 1 || map.stride(3) == stride) &&
      (map.size(2) == 1 || map.stride(2) == stride * map.size(3)) &&
      (map.size(0) == 1 || map.stride(0) == stride * map.size(3) * map.size(2));
  HEADROOM_CHECK(is_slice, "a gradient " + shape_text(map) +
                               " that is no slice of a channels-last map");
  return stride;
}

void check_like(const at::Tensor& y, const at::Tensor& other) {
  HEADROOM_CHECK(other.sizes() == y.sizes() && other.device() == y.device() &&
                     other.scalar_type() == y.scalar_type(),
                 shape_text(other) + " beside a map " + shape_text(y));
}

// [groups, 2, C] double.
double* group_values(const at::Tensor& values, const at::Tensor& y,
                     size_t groups) {
  HEADROOM_CHECK(
      values.scalar_type() == at::kDouble && values.is_contiguous() &&
          values.device() == y.device() &&
          values.numel() == static_cast<int64_t>(groups) * 2 * y.size(1),
      shape_text(values) + " beside " + std::to_string(groups) +
          " groups of a map " + shape_text(y));
  return values.mutable_data_ptr<double>();
}

// One call: a map with its groups, at most kMostGroups of them at a time.
class MapCall {
 public:
  MapCall(const at::Tensor& y, std::span<const int64_t> group_begins)
      : y_(y),
        begins_(group_begins),
        guard_(y.device()),
        stream_(at::cuda::getCurrentCUDAStream().stream()) {
    HEADROOM_CHECK(
        y.is_cuda() && is_channels_last(y),
        "a map " + shape_text(y) + " that is not channels-last on a device");
    HEADROOM_CHECK(begins_.size() >= 2 && begins_.front() == 0 &&
                       begins_.back() == y.size(0),
                   std::to_string(begins_.size()) + " bounds of groups of " +
                       std::to_string(y.size(0)) + " samples");
    arguments_.type = type_of(y);
    arguments_.channels = y.size(1);
    arguments_.y = y.const_data_ptr();
  }

  size_t groups() const { return begins_.size() - 1; }
  BatchNormArguments& arguments() { return arguments_; }

  void set_affine(const at::Tensor& weight, const at::Tensor& bias,
                  const layers::ActivationFunction& activation) {
    arguments_.activation = activation;
    const auto type =
        y_.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
    for (const at::Tensor* values : {&weight, &bias}) {
      HEADROOM_CHECK(values->numel() == y_.size(1) && values->is_contiguous() &&
                         values->device() == y_.device() &&
                         values->scalar_type() == type,
                     shape_text(*values) + " beside a map " + shape_text(y_));
    }
    arguments_.weight = weight.const_data_ptr();
    arguments_.bias = bias.const_data_ptr();
  }

  void set_gradient(const at::Tensor& gradient) {
    check_like(y_, gradient);
    arguments_.gradient = gradient.const_data_ptr();
    arguments_.gradient_stride = pixel_stride(gradient);
  }

  void set_result(const at::Tensor& result) {
    check_like(y_, result);
    HEADROOM_CHECK(is_channels_last(result),
                   "a result " + shape_text(result) + " of another layout");
    arguments_.result = result.mutable_data_ptr();
  }

  // Runs `launch(arguments, first group)` for all groups.
  template <typename Launch>
  void run(const double* statistics, const double* means, bool sums,
           const Launch& launch) {
    const int64_t pixels = y_.size(2) * y_.size(3);
    for (size_t first = 0; first < groups(); first += kMostGroups) {
      PixelGroups& part = arguments_.groups;
      part.count =
          static_cast<int>(std::min<size_t>(kMostGroups, groups() - first));
      for (int g = 0; g <= part.count; ++g) {
        part.begin[g] = begins_[first + static_cast<size_t>(g)] * pixels;
      }
      const auto skipped =
          static_cast<int64_t>(first) * 2 * arguments_.channels;
      if (statistics != nullptr) arguments_.statistics = statistics + skipped;
      if (means != nullptr) arguments_.means = means + skipped;
      at::Tensor partial;
      if (sums) {
        const MemoryCategoryScope scope(MemoryCategory::kWorkspace);
        partial =
            at::empty({partial_elements(arguments_)},
                      y_.options()
                          .memory_format(at::MemoryFormat::Contiguous)
                          .dtype(y_.scalar_type() == at::kDouble ? at::kDouble
                                                                 : at::kFloat));
        arguments_.partial = partial.mutable_data_ptr();
      }
      C10_CUDA_CHECK(static_cast<cudaError_t>(launch(arguments_, skipped)));
    }
  }

  cudaStream_t stream() const { return stream_; }

 private:
  const at::Tensor& y_;
  const std::span<const int64_t> begins_;
  const c10::cuda::CUDAGuard guard_;
  const cudaStream_t stream_;
  BatchNormArguments arguments_;
};

class CudaKernels final : public devices::DeviceKernels {
 public:
  void channel_sums(const at::Tensor& y, std::span<const int64_t> group_begins,
                    const at::Tensor& sums) override {
    MapCall call(y, group_begins);
    double* const to = group_values(sums, y, call.groups());
    call.run(nullptr, nullptr, true, [&](const auto& arguments, int64_t at) {
      return headroom_channel_sums(&arguments, to + at, call.stream());
    });
  }

  void normalise_and_activate(const at::Tensor& y,
                              std::span<const int64_t> group_begins,
                              const at::Tensor& statistics,
                              const at::Tensor& weight, const at::Tensor& bias,
                              const layers::ActivationFunction& activation,
                              const at::Tensor& out) override {
    MapCall call(y, group_begins);
    call.set_affine(weight, bias, activation);
    call.set_result(out);
    call.run(group_values(statistics, y, call.groups()), nullptr, false,
             [&](const auto& arguments, int64_t) {
               return headroom_normalise_and_activate(&arguments,
                                                      call.stream());
             });
  }

  void activation_gradient_sums(const at::Tensor& y, const at::Tensor& dout,
                                std::span<const int64_t> group_begins,
                                const at::Tensor& statistics,
                                const at::Tensor& weight,
                                const at::Tensor& bias,
                                const layers::ActivationFunction& activation,
                                const at::Tensor& sums) override {
    MapCall call(y, group_begins);
    call.set_affine(weight, bias, activation);
    call.set_gradient(dout);
    double* const to = group_values(sums, y, call.groups());
    call.run(group_values(statistics, y, call.groups()), nullptr, true,
             [&](const auto& arguments, int64_t at) {
               return headroom_activation_gradient_sums(&arguments, to + at,
                                                        call.stream());
             });
  }

  void norm_gradient(const at::Tensor& y, const at::Tensor& dout,
                     std::span<const int64_t> group_begins,
                     const at::Tensor& statistics, const at::Tensor& weight,
                     const at::Tensor& bias,
                     const layers::ActivationFunction& activation,
                     const at::Tensor& means, const at::Tensor& dy) override {
    MapCall call(y, group_begins);
    call.set_affine(weight, bias, activation);
    call.set_gradient(dout);
    call.set_result(dy);
    call.run(group_values(statistics, y, call.groups()),
             group_values(means, y, call.groups()), false,
             [&](const auto& arguments, int64_t) {
               return headroom_norm_gradient(&arguments, call.stream());
             });
  }

  at::Tensor upload(const at::Tensor& host,
                    const c10::Device& device) override {
    // CUDA's own allocator: pin_memory() asks that of the accelerator, which
    // another device of the process may be. The copy lives until the device has
    // read it: the allocator waits for the stream before it gives memory out
    // again.
    HEADROOM_CHECK(host.is_contiguous() && host.is_cpu(),
                   shape_text(host) + " of the host is not in one piece");
    at::HostAllocator* const pages = at::getHostAllocator(at::kCUDA);
    const c10::Storage storage(c10::Storage::use_byte_size_t(), host.nbytes(),
                               pages->allocate(host.nbytes()), pages,
                               /*resizable=*/false);
    const at::Tensor locked =
        at::empty({0}, host.options()).set_(storage, 0, host.sizes(), {});
    locked.copy_(host);
    return locked.to(device, host.scalar_type(), /*non_blocking=*/true);
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
