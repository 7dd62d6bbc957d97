#include "parallel/predict/operators.h"

#include <algorithm>
#include <utility>

#include "parallel/base/device_scratch.h"

namespace headroom::predict {
namespace {

// Bytes that a device takes in float64 while it sums cells: copies of some
// samples of a map, or of the product of two.
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
  MemoryTimeline& timeline = context.timeline;
  const int64_t samples = context.shape.samples;
  const int64_t bytes = context.shape.parameter_bytes();
  Graph::Outcome outcome;
  outcome.inputs.resize(1);
  // Sums in double, their copy in the parameters' type, two masks.
  const Memory dz = timeline.allocate(samples * x.channels * bytes);
  timeline.touch(samples * x.channels * (kDoubleBytes + 2) +
                 copied_bytes(context.shape, x, /*is_product=*/true));
  const Memory dhidden = timeline.allocate(samples * squeezed * bytes);
  timeline.touch(samples * squeezed);
  for (const int64_t count :
       {x.channels * squeezed, squeezed, x.channels * squeezed, x.channels}) {
    outcome.parameters.push_back(timeline.allocate(count * bytes));
  }
  if (x.wants_gradient()) {
    const Memory dmeans =
        timeline.allocate(samples * x.channels * kDoubleBytes);
    // It has the map's type and lies beside the factors.
    const Memory spread = timeline.allocate(2 * samples * x.channels * bytes);
    outcome.inputs.front().memory = context.allocate_map(x.channels, x.stride);
  }
  return outcome;
}

}  // namespace

Map squeeze_excite(const OpContext& context, const Map& x,
                   const layers::LayerProgram::Block& made) {
  MemoryTimeline& timeline = context.timeline;
  const int64_t samples = context.shape.samples;
  const int64_t bytes = context.shape.parameter_bytes();
  const auto sum = [&] {
    timeline.touch(copied_bytes(context.shape, x, /*is_product=*/false));
    return timeline.allocate(samples * x.channels * kDoubleBytes);
  };
  const Memory sums =
      context.replay != nullptr ? context.replay->once(sum) : sum();
  timeline.touch(sums->bytes + samples * x.channels * bytes);
  const Memory means = timeline.allocate(samples * x.channels * bytes);
  const Memory hidden = timeline.allocate(samples * made.squeezed * bytes);
  const Memory gate = timeline.allocate(samples * x.channels * bytes);
  const Memory spread = context.shape.is_mixed()
                            ? timeline.allocate(samples * x.channels *
                                                context.shape.element_bytes)
                            : gate;
  Map out = {context.allocate_map(x.channels, x.stride), x.channels, x.stride};
  if (context.derive != Derive::kNothing) {
    set_derivation(
        out.memory, {x.memory, spread},
        [&timeline, size = out.memory->bytes](const std::vector<Memory>&) {
          return timeline.allocate(size);
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
