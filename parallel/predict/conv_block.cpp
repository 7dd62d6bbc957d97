#include "parallel/predict/conv_block.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "parallel/base/cell_sum_copies.h"
#include "parallel/predict/convolution.h"
#include "parallel/predict/halo.h"

namespace headroom::predict {

namespace {

struct Block {
  ConvolutionShape convolution;
  int64_t around = 0;  // rows of the halo
  Map x;               // without memory
  int64_t output_bytes = 0;
  int64_t norm_bytes = 0;  // of a parameter per channel
};

Graph::Outcome backward(const OpContext& context, const Block& block,
                        Gradient gradient) {
  MemoryTimeline& timeline = context.timeline;
  const MicroBatchShape& extents = context.extents;
  Graph::Outcome outcome;
  Memory dy = own(timeline, gradient, block.output_bytes);
  gradient = {};
  outcome.parameters = {timeline.allocate(block.norm_bytes),
                        timeline.allocate(block.norm_bytes)};
  Memory joined;
  if (block.around > 0) joined = join_halo(context, block.x, block.around);
  Memory dx;
  if (block.x.wants_gradient()) {
    dx = timeline.allocate(joined != nullptr ? joined->bytes
                                             : context.bytes_of(block.x));
    timeline.touch(input_gradient_scratch(block.convolution, extents));
  }
  const Memory cast = cast_weight(context, block.convolution);
  timeline.touch(weight_gradient_bytes(block.convolution, extents));
  outcome.parameters.push_back(
      weight_gradient(timeline, block.convolution, extents));
  joined.reset();
  if (block.around > 0 && dx != nullptr) {
    Memory cut = give_back_halo(context, block.x, block.around);
    dx = std::move(cut);
  }
  outcome.inputs = {{std::move(dx), false}};
  return outcome;
}

void note_derivation(const OpContext& context, const Map& out, const Memory& y,
                     const Memory& statistics, int64_t norm_bytes) {
  if (context.derive == Derive::kNothing) return;
  MemoryTimeline& timeline = context.timeline;
  set_derivation(
      out.memory, {y, statistics},
      [&timeline, bytes = out.memory->bytes,
       affine = timeline.allocate(2 * norm_bytes)](const std::vector<Memory>&) {
        return timeline.allocate(bytes);
      });
}

}  // namespace

Map conv_block(const OpContext& context, const Map& x,
               const layers::LayerProgram::Block& made) {
  const int64_t channels = made.channels;
  const int64_t stride = made.stride;
  MemoryTimeline& timeline = context.timeline;
  const MicroBatchShape& extents = context.extents;
  Block block;
  block.convolution = {x.channels,        channels, made.kernel, stride,
                       x.stride * stride, true,     made.groups};
  block.around = rows_around(extents, made.kernel, stride);
  block.x = {nullptr, x.channels, x.stride, x.node};
  block.norm_bytes = channels * extents.parameter_bytes();

  Memory halo, joined;
  if (block.around > 0) {
    halo = fetch_halo(context, x, block.around);
    joined = join_halo(context, x, block.around);
  }
  const Memory y = context.allocate_map(channels, x.stride * stride);
  {
    const Memory cast = cast_weight(context, block.convolution);
    timeline.touch(forward_scratch(block.convolution, extents));
  }
  joined.reset();
  const auto count = [&] {
    return timeline.allocate(2 * extents.groups * channels * kDoubleBytes);
  };
  const Memory statistics =
      context.replay != nullptr ? context.replay->once(count) : count();
  Map out = {context.allocate_map(channels, x.stride * stride), channels,
             x.stride * stride};
  note_derivation(context, out, y, statistics, block.norm_bytes);
  block.output_bytes = out.memory->bytes;

  std::vector<Memory> saved = {x.memory, y, statistics};
  if (halo != nullptr) saved.push_back(halo);
  OpContext later = context;
  later.replay = nullptr;
  out.node = context.add({x}, saved, block.output_bytes, true,
                         [later, block](Gradient given) {
                           return backward(later, block, std::move(given));
                         });
  return out;
}

namespace {

// What a device adds in float64 while it sums cells: copies of some samples, of
// a map or of the product of two.
int64_t copied_bytes(const MicroBatchShape& extents, const Map& x,
                     bool is_product) {
  const bool is_double = extents.element_bytes == kDoubleBytes;
  if (!extents.on_device || extents.samples == 0 || (is_double && !is_product))
    return 0;
  const int64_t of_a_sample =
      extents.cells(x.stride) / extents.samples * x.channels;
  return std::min(extents.samples, samples_summed_at_once(of_a_sample)) *
         of_a_sample * kDoubleBytes;
}

Graph::Outcome backward(const OpContext& context, const Map& x,
                        int64_t squeezed) {
  MemoryTimeline& timeline = context.timeline;
  const int64_t samples = context.extents.samples;
  const int64_t bytes = context.extents.parameter_bytes();
  Graph::Outcome outcome;
  outcome.inputs.resize(1);
  // Sums in double, their copy in the parameters' type, two masks.
  const Memory dz = timeline.allocate(samples * x.channels * bytes);
  timeline.touch(samples * x.channels * (kDoubleBytes + 2) +
                 copied_bytes(context.extents, x, /*is_product=*/true));
  const Memory dhidden = timeline.allocate(samples * squeezed * bytes);
  timeline.touch(samples * squeezed);
  for (const int64_t count :
       {x.channels * squeezed, squeezed, x.channels * squeezed, x.channels}) {
    outcome.parameters.push_back(timeline.allocate(count * bytes));
  }
  if (x.wants_gradient()) {
    const Memory dmeans =
        timeline.allocate(samples * x.channels * kDoubleBytes);
    // Of the map's type, with the factors.
    const Memory spread = timeline.allocate(2 * samples * x.channels * bytes);
    outcome.inputs.front().memory = context.allocate_map(x.channels, x.stride);
  }
  return outcome;
}

}  // namespace

Map squeeze_excite(const OpContext& context, const Map& x,
                   const layers::LayerProgram::Block& made) {
  MemoryTimeline& timeline = context.timeline;
  const int64_t samples = context.extents.samples;
  const int64_t bytes = context.extents.parameter_bytes();
  const auto sum = [&] {
    timeline.touch(copied_bytes(context.extents, x, /*is_product=*/false));
    return timeline.allocate(samples * x.channels * kDoubleBytes);
  };
  const Memory sums =
      context.replay != nullptr ? context.replay->once(sum) : sum();
  timeline.touch(sums->bytes + samples * x.channels * bytes);
  const Memory means = timeline.allocate(samples * x.channels * bytes);
  const Memory hidden = timeline.allocate(samples * made.squeezed * bytes);
  const Memory gate = timeline.allocate(samples * x.channels * bytes);
  const Memory spread = context.extents.is_mixed()
                            ? timeline.allocate(samples * x.channels *
                                                context.extents.element_bytes)
                            : gate;
  Map out = {context.allocate_map(x.channels, x.stride), x.channels, x.stride};
  if (context.derive != Derive::kNothing) {
    set_derivation(
        out.memory, {x.memory, spread},
        [&timeline, size = out.memory->bytes](const std::vector<Memory>&) {
          return timeline.allocate(size);
        });
  }
  OpContext later = context;
  later.replay = nullptr;
  const Map plain = {nullptr, x.channels, x.stride, x.node};
  out.node =
      context.add({x}, {x.memory, means, hidden, gate}, out.memory->bytes, true,
                  [later, plain, squeezed = made.squeezed](Gradient given) {
                    Graph::Outcome outcome = backward(later, plain, squeezed);
                    static_cast<void>(given);
                    return outcome;
                  });
  return out;
}

namespace {

Graph::Outcome backward(const OpContext& context, const ConvolutionShape& shape,
                        const Map& x, int64_t channels) {
  MemoryTimeline& timeline = context.timeline;
  const MicroBatchShape& extents = context.extents;
  Graph::Outcome outcome;
  outcome.inputs.resize(1);
  outcome.parameters = {
      timeline.allocate(channels * extents.parameter_bytes())};
  {
    const Memory cells = context.allocate_map(shape.out_channels, x.stride);
    const Memory cast = cast_weight(context, shape);
    const Memory weight = timeline.allocate(shape.weight_bytes(extents));
    if (x.wants_gradient()) {
      outcome.inputs.front().memory =
          context.allocate_map(x.channels, x.stride);
      timeline.touch(input_gradient_scratch(shape, extents));
    }
    timeline.touch(weight_gradient_bytes(shape, extents));
  }
  outcome.parameters.push_back(weight_gradient(timeline, shape, extents));
  return outcome;
}

}  // namespace

Map transposed_conv(const OpContext& context, const Map& x,
                    const layers::LayerProgram::Block& made) {
  MemoryTimeline& timeline = context.timeline;
  const int64_t cells = made.kernel * made.kernel;
  const ConvolutionShape shape = {
      x.channels, cells * made.channels, 1, 1, x.stride, true};
  const int64_t stride = x.stride / made.stride;
  Map out = {nullptr, made.channels, stride};
  {
    const Memory grouped = context.allocate_map(shape.out_channels, x.stride);
    {
      const Memory cast = cast_weight(context, shape);
      const Memory weight =
          timeline.allocate(shape.weight_bytes(context.extents));
      timeline.touch(forward_scratch(shape, context.extents));
    }
    out.memory = context.allocate_map(made.channels, stride);
  }
  OpContext later = context;
  later.replay = nullptr;
  const Map plain = {nullptr, x.channels, x.stride, x.node};
  out.node = context.add({x}, {x.memory}, out.memory->bytes, true,
                         [later, shape, plain, made](Gradient gradient) {
                           Graph::Outcome outcome =
                               backward(later, shape, plain, made.channels);
                           static_cast<void>(gradient);
                           return outcome;
                         });
  return out;
}

}  // namespace headroom::predict
