#include "parallel/predict/operators.h"

#include <algorithm>
#include <utility>

#include "parallel/base/device_scratch.h"
#include "parallel/predict/convolution.h"

namespace headroom::predict {
namespace {

struct Block {
  ConvolutionShape convolution;
  int64_t around = 0;  // rows of the halo
  Map x;               // the input; holds no memory
  int64_t output_bytes = 0;
  int64_t norm_bytes = 0;  // one parameter per channel
};

Graph::Outcome backward(const OpContext& context, const Block& block,
                        Gradient gradient) {
  MemoryTimeline& timeline = context.timeline;
  const MicroBatchShape& shape = context.shape;
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
    timeline.touch(input_gradient_scratch(block.convolution, shape));
  }
  const Memory cast = cast_weight(context, block.convolution);
  timeline.touch(weight_gradient_bytes(block.convolution, shape));
  if (!shape.adds_gradients) {
    outcome.parameters.push_back(
        weight_gradient(timeline, block.convolution, shape));
  }
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
  const MicroBatchShape& shape = context.shape;
  Block block;
  block.convolution = {x.channels,        channels, made.kernel, stride,
                       x.stride * stride, true,     made.groups};
  block.around = rows_around(shape, made.kernel, stride);
  block.x = {nullptr, x.channels, x.stride, x.node};
  block.norm_bytes = channels * shape.parameter_bytes();

  Memory halo, joined;
  if (block.around > 0) {
    halo = fetch_halo(context, x, block.around);
    joined = join_halo(context, x, block.around);
  }
  const Memory y = context.allocate_map(channels, x.stride * stride);
  {
    const Memory cast = cast_weight(context, block.convolution);
    timeline.touch(forward_scratch(block.convolution, shape));
  }
  joined.reset();
  const auto count = [&] {
    return timeline.allocate(2 * shape.groups * channels * kDoubleBytes);
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
  OpContext later = context;
  later.replay = nullptr;
  const Map plain = {nullptr, x.channels, x.stride, x.node};
  out.node =
      context.add({x}, {x.memory, means, hidden, gate}, out.memory->bytes, true,
                  [later, plain, squeezed = made.squeezed](const Gradient&) {
                    return backward(later, plain, squeezed);
                  });
  return out;
}

namespace {

Graph::Outcome backward(const OpContext& context,
                        const ConvolutionShape& convolution, const Map& x,
                        int64_t channels) {
  MemoryTimeline& timeline = context.timeline;
  const MicroBatchShape& shape = context.shape;
  Graph::Outcome outcome;
  outcome.inputs.resize(1);
  outcome.parameters = {timeline.allocate(channels * shape.parameter_bytes())};
  {
    const Memory cells =
        context.allocate_map(convolution.out_channels, x.stride);
    const Memory cast = cast_weight(context, convolution);
    const Memory weight = timeline.allocate(convolution.weight_bytes(shape));
    if (x.wants_gradient()) {
      outcome.inputs.front().memory =
          context.allocate_map(x.channels, x.stride);
      timeline.touch(input_gradient_scratch(convolution, shape));
    }
    timeline.touch(weight_gradient_bytes(convolution, shape));
  }
  outcome.parameters.push_back(weight_gradient(timeline, convolution, shape));
  return outcome;
}

}  // namespace

Map transposed_conv(const OpContext& context, const Map& x,
                    const layers::LayerProgram::Block& made) {
  MemoryTimeline& timeline = context.timeline;
  const int64_t cells = made.kernel * made.kernel;
  const ConvolutionShape convolution = {
      x.channels, cells * made.channels, 1, 1, x.stride, true};
  const int64_t stride = x.stride / made.stride;
  Map out = {nullptr, made.channels, stride};
  {
    const Memory grouped =
        context.allocate_map(convolution.out_channels, x.stride);
    {
      const Memory cast = cast_weight(context, convolution);
      const Memory weight =
          timeline.allocate(convolution.weight_bytes(context.shape));
      timeline.touch(forward_scratch(convolution, context.shape));
    }
    out.memory = context.allocate_map(made.channels, stride);
  }
  OpContext later = context;
  later.replay = nullptr;
  const Map plain = {nullptr, x.channels, x.stride, x.node};
  out.node =
      context.add({x}, {x.memory}, out.memory->bytes, true,
                  [later, convolution, plain, made](const Gradient&) {
                    return backward(later, convolution, plain, made.channels);
                  });
  return out;
}

namespace {

// Notes a derivation that allocates as much as the map.
void note(const OpContext& context, const Map& out,
          const std::vector<Map>& from) {
  if (context.derive == Derive::kNothing) return;
  std::vector<Memory> sources;
  for (const Map& map : from) sources.push_back(map.memory);
  set_derivation(
      out.memory, sources,
      [&timeline = context.timeline, bytes = out.memory->bytes](
          const std::vector<Memory>&) { return timeline.allocate(bytes); });
}

using InputGradients = layers::LayerProgram::InputGradients;

// Each input gets the output's gradient: all of it, or its channels in place.
Graph::Backward handing_out(size_t num_inputs, bool as_slices) {
  return [num_inputs, as_slices](const Gradient& gradient) {
    Graph::Outcome outcome;
    outcome.inputs.assign(num_inputs,
                          {gradient.memory, as_slices || gradient.is_slice});
    return outcome;
  };
}

// New gradients of so many bytes, beside a copy of `dense_bytes` where the
// output's gradient is a slice.
Graph::Backward making_new(MemoryTimeline& timeline, std::vector<int64_t> bytes,
                           int64_t dense_bytes) {
  return [&timeline, bytes = std::move(bytes),
          dense_bytes](const Gradient& gradient) {
    const Memory copy =
        gradient.is_slice ? timeline.allocate(dense_bytes) : nullptr;
    Graph::Outcome outcome;
    for (const int64_t one : bytes)
      outcome.inputs.push_back({timeline.allocate(one), false});
    return outcome;
  };
}

Map concatenation(const OpContext& context, const std::vector<Map>& maps) {
  Map out = {nullptr, 0, maps.front().stride};
  for (const Map& map : maps) out.channels += map.channels;
  out.memory = context.allocate_map(out.channels, out.stride);
  out.node = context.add(maps, {}, out.memory->bytes, false,
                         handing_out(maps.size(), /*as_slices=*/true));
  return out;
}

// Adds the node of a pooling from x, of `bytes`, to `out`, and what it keeps
// (worker/model/max_pool.h).
int pooled_from(const OpContext& context, const Map& x, int64_t bytes,
                const Map& out, int64_t window) {
  MemoryTimeline& timeline = context.timeline;
  const int64_t elements = out.memory->bytes / context.shape.element_bytes;
  if (!context.shape.on_device || !chooses_in_bytes(window)) {
    const Memory indices = timeline.allocate(elements * kIndexBytes);
    return context.add({x}, {x.memory, indices}, out.memory->bytes, false,
                       making_new(timeline, {bytes}, out.memory->bytes));
  }
  if (!context.is_recorded({x}, false)) return Graph::kNobody;
  // Its gradient is read where it lies.
  return context.add({x}, {timeline.allocate(elements)}, out.memory->bytes,
                     false, making_new(timeline, {bytes}, 0));
}

Map pool(const OpContext& context, const Map& x, int64_t window) {
  Map out = {context.allocate_map(x.channels, x.stride), x.channels, x.stride};
  out.node = pooled_from(context, x, context.bytes_of(x), out, window);
  return out;
}

// The same on a rank's rows, with maps that are wider than they.
class SplitPools {
 public:
  SplitPools(const OpContext& context, const Map& y,
             const std::vector<int64_t>& windows)
      : pass_(context), y_(y), windows_(windows) {
    for (const int64_t window : windows) around_ += window - 1;
  }

  Map run() {
    std::vector<Map> maps = {y_};
    Map wide = widened();
    for (const int64_t window : windows_) {
      around_ -= window - 1;
      wide = without_rows_beyond_edge(pooled(wide, window));
      maps.push_back({wide.memory, y_.channels, y_.stride, own_rows(wide)});
    }
    return concatenation(pass_, maps);
  }

 private:
  int64_t wide_bytes() const {
    return pass_.bytes_of(y_) +
           pass_.shape.rows_bytes(around_, y_.channels, y_.stride);
  }
  // Fetch and join as one operation.
  Map widened() {
    const Memory halo = fetch_halo(pass_, y_, around_);
    Map wide = {join_halo(pass_, y_, around_), y_.channels, y_.stride};
    OpContext later = pass_;
    later.replay = nullptr;
    Map plain = y_;
    plain.memory = nullptr;
    wide.node = pass_.add(
        {y_}, {}, wide.memory->bytes, false,
        [later, plain, around = around_](Gradient given) {
          Graph::Outcome outcome;
          outcome.inputs = {{give_back_halo(later, plain, around), false}};
          static_cast<void>(given);
          return outcome;
        });
    return wide;
  }
  Map pooled(const Map& x, int64_t window) {
    Map out = {pass_.timeline.allocate(wide_bytes()), y_.channels, y_.stride};
    out.node = pooled_from(pass_, x, x.memory->bytes, out, window);
    return out;
  }
  // A copy with lowest values beyond the image's edge, as long as rows are
  // left around the rank's own.
  Map without_rows_beyond_edge(const Map& wide) {
    if (around_ == 0) return wide;
    Map out = {pass_.timeline.allocate(wide_bytes()), y_.channels, y_.stride};
    out.node =
        pass_.add({wide}, {}, wide_bytes(), false,
                  making_new(pass_.timeline, {wide_bytes()}, wide_bytes()));
    return out;
  }
  // The rank's own rows of a map that may be wider: a window, whose gradient is
  // as wide.
  int own_rows(const Map& wide) {
    return pass_.add({wide}, {}, pass_.bytes_of(y_), false,
                     making_new(pass_.timeline, {wide_bytes()}, 0));
  }

  const OpContext& pass_;
  const Map& y_;
  const std::vector<int64_t>& windows_;
  int64_t around_ = 0;  // rows above and below together
};

}  // namespace

Map derived_map(const OpContext& context, const std::vector<Map>& inputs,
                const layers::MapShape& output, InputGradients gradients) {
  Map out = {context.allocate_map(output.channels, output.stride),
             output.channels, output.stride};
  note(context, out, inputs);
  Graph::Backward backward;
  if (gradients == InputGradients::kShared ||
      gradients == InputGradients::kSlices) {
    backward = handing_out(inputs.size(), gradients == InputGradients::kSlices);
  } else {
    std::vector<int64_t> bytes;
    for (const Map& input : inputs) bytes.push_back(context.bytes_of(input));
    backward = making_new(
        context.timeline, std::move(bytes),
        gradients == InputGradients::kOfDense ? out.memory->bytes : 0);
  }
  out.node =
      context.add(inputs, {}, out.memory->bytes, false, std::move(backward));
  return out;
}

Map chained_pools(const OpContext& context, const Map& y,
                  const std::vector<int64_t>& windows) {
  if (context.shape.is_split()) return SplitPools(context, y, windows).run();
  std::vector<Map> maps = {y};
  for (const int64_t window : windows)
    maps.push_back(pool(context, maps.back(), window));
  return concatenation(context, maps);
}

namespace {

// Bytes of the copies that are sent and received: rows of several samples are
// not one piece of memory. With one neighbour both together are the halo's
// rows.
int64_t message_bytes(const OpContext& context, const Map& map,
                      int64_t around) {
  if (context.shape.samples == 1) return 0;
  return context.shape.neighbours *
         context.shape.rows_bytes(around, map.channels, map.stride);
}

}  // namespace

int64_t rows_around(const MicroBatchShape& shape, int64_t kernel,
                    int64_t stride) {
  return shape.is_split() ? std::max<int64_t>(kernel - stride, 0) : 0;
}

Memory fetch_halo(const OpContext& context, const Map& map, int64_t around) {
  const auto fetch = [&] {
    Memory halo = context.timeline.allocate(
        context.shape.rows_bytes(around, map.channels, map.stride));
    context.timeline.touch(message_bytes(context, map, around));
    return halo;
  };
  return context.replay != nullptr ? context.replay->once(fetch) : fetch();
}

Memory join_halo(const OpContext& context, const Map& map, int64_t around) {
  return context.timeline.allocate(
      context.bytes_of(map) +
      context.shape.rows_bytes(around, map.channels, map.stride));
}

Memory give_back_halo(const OpContext& context, const Map& map,
                      int64_t around) {
  const int64_t halo =
      context.shape.rows_bytes(around, map.channels, map.stride);
  const Memory sent = context.timeline.allocate(halo);
  Memory own_rows = context.timeline.allocate(context.bytes_of(map));
  // What comes back is received apart, also of one sample.
  const int64_t received = context.shape.neighbours * halo;
  const int64_t copied = context.shape.samples == 1 ? 0 : received;
  context.timeline.touch(received + copied);
  return own_rows;
}

}  // namespace headroom::predict
