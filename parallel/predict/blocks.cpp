#include <algorithm>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/device_scratch.h"
#include "parallel/predict/convolution.h"
#include "parallel/predict/operators.h"

namespace headroom::predict {
namespace {

// --- Transposed convolution

Graph::Outcome transposed_backward(const OpContext& context,
                                   const Convolution& convolution, const Map& x,
                                   int64_t channels) {
  LiveBuffers& buffers = context.buffers;
  const MicroBatchShape& shape = context.shape;
  Graph::Outcome outcome;
  outcome.inputs.resize(1);
  outcome.parameters = {buffers.allocate(channels * shape.parameter_bytes())};
  {
    const Memory cells =
        context.allocate_map(convolution.out_channels, x.stride);
    const Memory cast = cast_weight(context, convolution);
    const Memory weight = buffers.allocate(convolution.weight_bytes(shape));
    if (x.wants_gradient()) {
      outcome.inputs.front().memory =
          context.allocate_map(x.channels, x.stride);
      buffers.touch(input_gradient_scratch(convolution, shape));
    }
    buffers.touch(weight_gradient_bytes(convolution, shape));
  }
  outcome.parameters.push_back(weight_gradient(buffers, convolution, shape));
  return outcome;
}

// A transposed convolution with kernel = stride, computed as in
// worker/model/convolution_modules.h: a 1x1 convolution computes all output
// cells of an input cell as channels, which are then moved to their places.
//
//   keeps     x
//   backward  moves the output's gradient back into channels, then computes the
//             gradients of x and of the weight
Map transposed_conv(const OpContext& context, const Map& x,
                    const layers::LayerProgram::Block& made) {
  LiveBuffers& buffers = context.buffers;
  const int64_t cells = made.kernel * made.kernel;
  const Convolution convolution = {
      x.channels, cells * made.channels, 1, 1, x.stride, true};
  const int64_t stride = x.stride / made.stride;
  Map out = {nullptr, made.channels, stride};
  {
    const Memory grouped =
        context.allocate_map(convolution.out_channels, x.stride);
    {
      const Memory cast = cast_weight(context, convolution);
      const Memory weight =
          buffers.allocate(convolution.weight_bytes(context.shape));
      buffers.touch(forward_scratch(convolution, context.shape));
    }
    out.memory = context.allocate_map(made.channels, stride);
  }
  out.node = context.add({x}, {x.memory}, out.memory->bytes, true,
                         [later = context.in_backward(), convolution,
                          plain = x.without_memory(), made](const Gradient&) {
                           return transposed_backward(later, convolution, plain,
                                                      made.channels);
                         });
  return out;
}

// --- Squeeze and excitation

// Bytes of the float64 copies that a device makes while it sums cells. It
// copies samples of a map, or of the product of two maps.
int64_t copied_bytes(const MicroBatchShape& shape, const Map& x,
                     bool is_product) {
  const bool is_double = shape.element_bytes == kDoubleBytes;
  if (!shape.on_device || shape.samples == 0 || (is_double && !is_product))
    return 0;
  const int64_t of_a_sample =
      shape.cells(x.stride) / shape.samples * x.channels;
  return std::min(shape.samples, samples_summed_at_once(of_a_sample)) *
         of_a_sample * kDoubleBytes;
}

Graph::Outcome excite_backward(const OpContext& context, const Map& x,
                               int64_t squeezed) {
  LiveBuffers& buffers = context.buffers;
  const int64_t samples = context.shape.samples;
  const int64_t bytes = context.shape.parameter_bytes();
  Graph::Outcome outcome;
  outcome.inputs.resize(1);
  // Allocates sums in double, their copy in the parameters' type, two masks.
  const Memory dz = buffers.allocate(samples * x.channels * bytes);
  buffers.touch(samples * x.channels * (kDoubleBytes + 2) +
                copied_bytes(context.shape, x, /*is_product=*/true));
  const Memory dhidden = buffers.allocate(samples * squeezed * bytes);
  buffers.touch(samples * squeezed);
  for (const int64_t count :
       {x.channels * squeezed, squeezed, x.channels * squeezed, x.channels}) {
    outcome.parameters.push_back(buffers.allocate(count * bytes));
  }
  if (x.wants_gradient()) {
    const Memory dmeans = buffers.allocate(samples * x.channels * kDoubleBytes);
    // Copies of dmeans and of the factors, from which x's gradient is computed.
    const Memory spread = buffers.allocate(2 * samples * x.channels * bytes);
    outcome.inputs.front().memory = context.allocate_map(x.channels, x.stride);
  }
  return outcome;
}

// Squeeze and excitation, as worker/model/convolution_modules.h runs it.
//
//   keeps     x; per sample the means, the squeezed means and the factors
//   backward  computes x's gradient while the output's gradient is held
//
// The output can be recomputed from x and the factors.
Map squeeze_excite(const OpContext& context, const Map& x,
                   const layers::LayerProgram::Block& made) {
  LiveBuffers& buffers = context.buffers;
  const int64_t samples = context.shape.samples;
  const int64_t bytes = context.shape.parameter_bytes();
  const auto sum = [&] {
    buffers.touch(copied_bytes(context.shape, x, /*is_product=*/false));
    return buffers.allocate(samples * x.channels * kDoubleBytes);
  };
  const Memory sums =
      context.replay != nullptr ? context.replay->once(sum) : sum();
  buffers.touch(sums->bytes + samples * x.channels * bytes);
  const Memory means = buffers.allocate(samples * x.channels * bytes);
  const Memory hidden = buffers.allocate(samples * made.squeezed * bytes);
  const Memory gate = buffers.allocate(samples * x.channels * bytes);
  const Memory spread =
      context.shape.is_mixed()
          ? buffers.allocate(samples * x.channels * context.shape.element_bytes)
          : gate;
  Map out = {context.allocate_map(x.channels, x.stride), x.channels, x.stride};
  if (context.derive != Derive::kNothing) {
    set_derivation(
        out.memory, {x.memory, spread},
        [&buffers, size = out.memory->bytes](const std::vector<Memory>&) {
          return buffers.allocate(size);
        });
  }
  out.node =
      context.add({x}, {x.memory, means, hidden, gate}, out.memory->bytes, true,
                  [later = context.in_backward(), plain = x.without_memory(),
                   squeezed = made.squeezed](const Gradient&) {
                    return excite_backward(later, plain, squeezed);
                  });
  return out;
}

}  // namespace

Map run_block(const OpContext& context, const Map& x,
              const layers::LayerProgram::Block& made) {
  using Kind = layers::LayerProgram::BlockKind;
  switch (made.kind) {
    case Kind::kConv:
      return conv_block(context, x, made);
    case Kind::kTransposedConv:
      return transposed_conv(context, x, made);
    case Kind::kSqueezeExcite:
      return squeeze_excite(context, x, made);
    case Kind::kOutputConv:
      return output_conv(context, x, made.channels);
  }
  HEADROOM_CHECK(false, made.name + " is a block of no kind");
}

}  // namespace headroom::predict
