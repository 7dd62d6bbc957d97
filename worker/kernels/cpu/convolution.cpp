#include "worker/kernels/cpu/convolution.h"

#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/zeros_like.h>

#include <tuple>

#include "parallel/base/convolution_workspaces.h"
#include "parallel/base/memory_category.h"
#include "parallel/machine/processor.h"
#include "worker/kernels/cpu/folded_convolution.h"

namespace headroom::kernels {
namespace {

// LibTorch uses oneDNN for all convolutions from this batch size on.
constexpr int64_t kLeastBatch = 16;

// Below this number of pixels, flat samples are too short to be faster.
constexpr int64_t kLeastPixels = 200;

bool wants_flat_samples(const at::Tensor& x, const at::Tensor& weight,
                        const ConvolutionShape& shape) {
  return x.is_cpu() && x.scalar_type() == at::kFloat &&
         x.size(0) < kLeastBatch &&
         x.size(0) * x.size(2) * x.size(3) >= kLeastPixels &&
         weight.size(2) == 1 && weight.size(3) == 1 && shape.stride == 1 &&
         shape.groups == 1 && shape.padding_height == 0 &&
         shape.padding_width == 0;
}

// Views the same memory as at least kLeastBatch samples of one row.
at::Tensor flat_samples(const at::Tensor& map) {
  const int64_t channels = map.size(1);
  const int64_t pixels = map.size(0) * map.size(2) * map.size(3);
  int64_t batch = kLeastBatch;
  while (pixels % batch != 0) ++batch;
  const int64_t width = pixels / batch;
  return map.as_strided({batch, channels, 1, width},
                        {width * channels, 1, width * channels, channels});
}

at::Tensor with_shape_of(const at::Tensor& flat, int64_t samples,
                         int64_t height, int64_t width) {
  const int64_t channels = flat.size(1);
  return flat.as_strided(
      {samples, channels, height, width},
      {height * width * channels, 1, width * channels, channels});
}

// Number of output cells along an axis.
int64_t extent(const at::Tensor& x, const at::Tensor& weight, int64_t padding,
               int64_t axis, const ConvolutionShape& shape) {
  return (x.size(axis) + 2 * padding - weight.size(axis)) / shape.stride + 1;
}

// oneDNN convolves bfloat16 on some processors and float16 on few. LibTorch's
// own code for both takes twenty times as long as oneDNN's float32.
bool computes_in_float(const at::Tensor& x) {
  if (!x.is_cpu()) return false;
  return x.scalar_type() == at::kHalf ||
         (x.scalar_type() == at::kBFloat16 && onednn_isa() == OnednnIsa::kAvx2);
}

// The key under which the memory model looks up this convolution, whatever
// tensors the library is actually given.
ConvolutionKey key_of(const at::Tensor& x, const at::Tensor& weight,
                      const ConvolutionShape& shape, bool is_backward,
                      int64_t out_cells) {
  return {.is_backward = is_backward,
          .in_channels = x.size(1),
          .out_channels = weight.size(0),
          .taps = weight.size(2) * weight.size(3),
          .stride = shape.stride,
          .groups = shape.groups,
          .samples = x.size(0),
          .out_cells = out_cells,
          .element_bytes = static_cast<int64_t>(x.element_size())};
}

ConvolutionKey forward_key(const at::Tensor& x, const at::Tensor& weight,
                           const ConvolutionShape& shape) {
  return key_of(x, weight, shape, /*is_backward=*/false,
                x.size(0) * extent(x, weight, shape.padding_height, 2, shape) *
                    extent(x, weight, shape.padding_width, 3, shape));
}

// Records the workspace of a device's library; the CPU's is known in advance.
void note_workspace(const WorkspaceScope& scope, const at::Tensor& x,
                    const ConvolutionKey& key) {
  if (x.is_cpu()) return;
  convolution_workspaces().note(key, scope.workspace_bytes());
}

// The folded inputs that the library gets instead of the original ones. The
// memory model accounts for them.
struct Folded {
  Folded(const at::Tensor& unfolded_x, const at::Tensor& unfolded_weight,
         const ConvolutionShape& unfolded)
      : shape(folded(unfolded)) {
    const MemoryCategoryScope scope(MemoryCategory::kWorkspace);
    x = fold_pixels(unfolded_x);
    weight = fold_taps(unfolded_weight);
  }

  at::Tensor x, weight;
  ConvolutionShape shape;
};

// CUDA's library has no float64 convolution for channels-last: it would copy
// its inputs to plain layout and return a plain result. The copies are made
// here instead, so that the memory model can count them.
bool is_convolved_plain(const at::Tensor& x) {
  return !x.is_cpu() && x.scalar_type() == at::kDouble;
}

// Returns the tensor in the layout that the library gets.
at::Tensor as_convolved(const at::Tensor& tensor) {
  if (!is_convolved_plain(tensor)) return tensor;
  const MemoryCategoryScope scope(MemoryCategory::kWorkspace);
  return tensor.contiguous();
}

// Calls the library; the result may be in plain layout.
at::Tensor convolve(const at::Tensor& x, const at::Tensor& weight,
                    const ConvolutionShape& shape, const ConvolutionKey& key) {
  const WorkspaceScope scope(key.out_cells * key.out_channels *
                             key.element_bytes);
  at::Tensor y = at::convolution(x, weight, {}, {shape.stride, shape.stride},
                                 {shape.padding_height, shape.padding_width},
                                 {1, 1}, false, {0, 0}, shape.groups);
  note_workspace(scope, x, key);
  return y;
}

// Calls the library for the gradients.
ConvolutionGradients differentiate(const at::Tensor& dy, const at::Tensor& x,
                                   const at::Tensor& weight,
                                   const ConvolutionShape& shape, bool wants_dx,
                                   bool wants_dweight,
                                   const ConvolutionKey& key) {
  ConvolutionGradients gradients;
  const WorkspaceScope scope(static_cast<int64_t>(x.nbytes()),
                             static_cast<int64_t>(weight.nbytes()));
  std::tie(gradients.dx, gradients.dweight, std::ignore) =
      at::convolution_backward(dy, x, weight, at::OptionalIntArrayRef(),
                               {shape.stride, shape.stride},
                               {shape.padding_height, shape.padding_width},
                               {1, 1}, false, {0, 0}, shape.groups,
                               {wants_dx, wants_dweight, false});
  note_workspace(scope, x, key);
  return gradients;
}

at::Tensor channels_last(const at::Tensor& map) {
  return map.contiguous(at::MemoryFormat::ChannelsLast);
}

}  // namespace

at::Tensor convolution(const at::Tensor& x, const at::Tensor& weight,
                       const ConvolutionShape& shape) {
  if (x.size(0) == 0) {
    return at::empty(
        {0, weight.size(0), extent(x, weight, shape.padding_height, 2, shape),
         extent(x, weight, shape.padding_width, 3, shape)},
        x.options().memory_format(at::MemoryFormat::ChannelsLast));
  }
  if (computes_in_float(x)) {
    const at::Tensor y =
        convolution(x.to(at::kFloat), weight.to(at::kFloat), shape);
    return y.to(x.scalar_type());
  }
  const ConvolutionKey key = forward_key(x, weight, shape);
  if (wants_flat_samples(x, weight, shape)) {
    return with_shape_of(
        channels_last(convolve(flat_samples(x), weight, shape, key)), x.size(0),
        x.size(2), x.size(3));
  }
  if (can_be_folded(x, weight, shape)) {
    const Folded part(x, weight, shape);
    return channels_last(convolve(part.x, part.weight, part.shape, key));
  }
  // The copies are freed before the result is converted.
  const at::Tensor y =
      convolve(as_convolved(x), as_convolved(weight), shape, key);
  return channels_last(y);
}

ConvolutionGradients convolution_gradients(const at::Tensor& dy,
                                           const at::Tensor& x,
                                           const at::Tensor& weight,
                                           const ConvolutionShape& shape,
                                           bool wants_dx, bool wants_dweight) {
  ConvolutionGradients gradients;
  if (x.size(0) == 0) {
    if (wants_dx) gradients.dx = at::empty_like(x);
    if (wants_dweight) gradients.dweight = at::zeros_like(weight);
    return gradients;
  }
  if (!wants_dx && !wants_dweight) return gradients;
  if (computes_in_float(x)) {
    gradients = convolution_gradients(dy.to(at::kFloat), x.to(at::kFloat),
                                      weight.to(at::kFloat), shape, wants_dx,
                                      wants_dweight);
    if (wants_dx) gradients.dx = gradients.dx.to(x.scalar_type());
    if (wants_dweight) {
      gradients.dweight = gradients.dweight.to(weight.scalar_type());
    }
    return gradients;
  }
  const ConvolutionKey key = key_of(x, weight, shape, /*is_backward=*/true,
                                    dy.size(0) * dy.size(2) * dy.size(3));
  if (!wants_dx && can_be_folded(x, weight, shape)) {
    const Folded part(x, weight, shape);
    gradients = differentiate(dy, part.x, part.weight, part.shape,
                              /*wants_dx=*/false, wants_dweight, key);
    gradients.dweight = unfold_taps(gradients.dweight, weight);
    return gradients;
  }
  const bool flat = wants_flat_samples(x, weight, shape);
  gradients =
      differentiate(flat ? flat_samples(dy) : as_convolved(dy),
                    flat ? flat_samples(x) : as_convolved(x),
                    as_convolved(weight), shape, wants_dx, wants_dweight, key);
  if (wants_dx && (flat || is_convolved_plain(x))) {
    gradients.dx = channels_last(gradients.dx);
  }
  if (wants_dweight && is_convolved_plain(x)) {
    gradients.dweight = channels_last(gradients.dweight);
  }
  if (wants_dx && flat) {
    gradients.dx = with_shape_of(gradients.dx, x.size(0), x.size(2), x.size(3));
  }
  return gradients;
}

}  // namespace headroom::kernels
