#include "parallel/predict/operators.h"

#include <algorithm>
#include <utility>

#include "parallel/base/device_scratch.h"

namespace headroom::predict {
namespace {

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

Graph::Outcome backward(const OpContext& context, const Map& x,
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

}  // namespace

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
                    return backward(later, plain, squeezed);
                  });
  return out;
}

}  // namespace headroom::predict
