#include "parallel/predict/operators.h"

#include <utility>

namespace headroom::predict {
namespace {

using InputGradients = layers::LayerProgram::InputGradients;

// Each input receives the output's gradient: the whole gradient, or a view of
// its channels.
Graph::Backward handing_out(size_t num_inputs, bool as_slices) {
  return [num_inputs, as_slices](const Gradient& gradient) {
    Graph::Outcome outcome;
    outcome.inputs.assign(num_inputs,
                          {gradient.memory, as_slices || gradient.is_slice});
    return outcome;
  };
}

// Records that the map can be recomputed into a new buffer of equal size.
void note(const OpContext& context, const Map& out,
          const std::vector<Map>& from) {
  if (context.derive == Derive::kNothing) return;
  std::vector<Memory> sources;
  for (const Map& map : from) sources.push_back(map.memory);
  set_derivation(
      out.memory, sources,
      [&buffers = context.buffers, bytes = out.memory->bytes](
          const std::vector<Memory>&) { return buffers.allocate(bytes); });
}

}  // namespace

Graph::Backward making_new(LiveBuffers& buffers, std::vector<int64_t> bytes,
                           int64_t dense_bytes) {
  return [&buffers, bytes = std::move(bytes),
          dense_bytes](const Gradient& gradient) {
    const Memory copy =
        gradient.is_slice ? buffers.allocate(dense_bytes) : nullptr;
    Graph::Outcome outcome;
    for (const int64_t one : bytes)
      outcome.inputs.push_back({buffers.allocate(one), false});
    return outcome;
  };
}

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
        context.buffers, std::move(bytes),
        gradients == InputGradients::kOfDense ? out.memory->bytes : 0);
  }
  out.node =
      context.add(inputs, {}, out.memory->bytes, false, std::move(backward));
  return out;
}

}  // namespace headroom::predict
