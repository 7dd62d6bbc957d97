#include "configs/layers/layer_program.h"

#include <algorithm>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::layers {

using BlockKind = LayerProgram::BlockKind;
using Operation = LayerProgram::Operation;

namespace {

int64_t convolution_weights(const LayerProgram::Block& block) {
  return block.kernel * block.kernel * block.in_channels / block.groups *
         block.channels;
}

}  // namespace

const MapShape& LayerProgram::shape_of(int value) const {
  const auto at = static_cast<size_t>(value);
  return at < inputs.size() ? inputs[at] : steps[at - inputs.size()].output;
}

std::vector<std::vector<int>> LayerProgram::released() const {
  std::vector<std::vector<int>> result(steps.size());
  for (int value = 0; value < num_values(); ++value) {
    for (size_t step = steps.size(); step-- > 0;) {
      if (std::ranges::find(steps[step].inputs, value) ==
          steps[step].inputs.end()) {
        continue;
      }
      result[step].push_back(value);
      break;
    }
  }
  return result;
}

LayerInside LayerProgram::inside() const {
  if (std::ranges::none_of(steps, &Step::keeps_inputs))
    return LayerInside::kNothing;
  return steps.size() == 1 && steps.front().operation == Operation::kBlock &&
                 block_of(steps.front()).kind == BlockKind::kConv
             ? LayerInside::kOneConvolution
             : LayerInside::kSeveralMaps;
}

double elements_per_pixel(const MapShape& map) {
  const auto stride = static_cast<double>(map.stride);
  return static_cast<double>(map.channels) / (stride * stride);
}

size_t LayerProgram::declare_conv(Block block) {
  block.kind = BlockKind::kConv;
  block.weights = convolution_weights(block);
  block.parameters = {block.weights, block.channels, block.channels};
  block.norm_channels = block.channels;
  return declare(std::move(block));
}

size_t LayerProgram::declare_transposed_conv(Block block) {
  HEADROOM_CHECK(block.kernel == block.stride,
                 cat("a transposed convolution of kernel ", block.kernel,
                     " and stride ", block.stride));
  block.kind = BlockKind::kTransposedConv;
  block.weights = convolution_weights(block);
  block.parameters = {block.weights, block.channels};
  return declare(std::move(block));
}

size_t LayerProgram::declare_squeeze_excite(std::string name, int64_t channels,
                                            int64_t squeezed) {
  Block block = {std::move(name), channels, channels};
  block.kind = BlockKind::kSqueezeExcite;
  block.squeezed = squeezed;
  block.weights = 2 * squeezed * channels;
  block.parameters = {squeezed * channels, squeezed, channels * squeezed,
                      channels};
  return declare(std::move(block));
}

size_t LayerProgram::declare_output_conv(std::string name, int64_t in_channels,
                                         int64_t channels, double first_bias) {
  Block block = {std::move(name), in_channels, channels};
  block.kind = BlockKind::kOutputConv;
  block.first_bias = first_bias;
  block.weights = convolution_weights(block);
  block.parameters = {block.weights, block.channels};
  return declare(std::move(block));
}

size_t LayerProgram::declare(Block block) {
  blocks.push_back(std::move(block));
  return blocks.size() - 1;
}

int LayerProgram::push(Step step) {
  steps.push_back(std::move(step));
  return num_values() - 1;
}

int LayerProgram::run_block(size_t block, int x) {
  const Block& made = blocks.at(block);
  HEADROOM_CHECK(made.in_channels == shape_of(x).channels,
                 cat(made.name, " of ", made.in_channels,
                     " channels on a map of ", shape_of(x).channels));
  Step step;
  step.operation = Operation::kBlock;
  step.inputs = {x};
  step.block = block;
  step.output = {made.channels, shape_of(x).stride};
  step.facts.input_gradients = InputGradients::kFromInputs;
  // A convolution multiplies each weight once per cell of the coarser map.
  switch (made.kind) {
    case BlockKind::kConv:
      step.output.stride *= made.stride;
      step.facts.multiply_adds_per_pixel =
          elements_per_pixel({made.weights, step.output.stride});
      step.facts.kept_elements_per_pixel = elements_per_pixel(step.output);
      step.facts.sums_channels = true;
      if (made.kernel > 1)
        step.facts.halo_channel_rows = {(made.kernel - 1) * made.channels};
      break;
    case BlockKind::kTransposedConv:
      step.output.stride /= made.stride;
      step.facts.multiply_adds_per_pixel =
          elements_per_pixel({made.weights, shape_of(x).stride});
      break;
    case BlockKind::kSqueezeExcite:
      step.facts.sums_channels = true;
      break;
    case BlockKind::kOutputConv:
      step.facts.multiply_adds_per_pixel =
          elements_per_pixel({made.weights, step.output.stride});
      break;
  }
  return push(std::move(step));
}

int LayerProgram::pools(int x, std::vector<int64_t> windows) {
  Step step;
  step.operation = Operation::kPools;
  step.inputs = {x};
  step.output = shape_of(x);
  step.output.channels *= static_cast<int64_t>(windows.size()) + 1;
  step.facts.input_gradients = InputGradients::kFromInputs;
  // All maps between the poolings are kept.
  step.facts.kept_elements_per_pixel = elements_per_pixel(
      {static_cast<int64_t>(windows.size() - 1) * shape_of(x).channels,
       shape_of(x).stride});
  for (const int64_t window : windows)
    step.facts.halo_channel_rows.push_back((window - 1) * shape_of(x).channels);
  step.windows = std::move(windows);
  return push(std::move(step));
}

int LayerProgram::add(int a, int b) {
  HEADROOM_CHECK(shape_of(a) == shape_of(b), "a sum of different maps");
  Step step;
  step.operation = Operation::kAdd;
  step.inputs = {a, b};
  step.output = shape_of(a);
  step.facts.input_gradients = InputGradients::kShared;
  return push(std::move(step));
}

int LayerProgram::concatenate(const std::vector<int>& values) {
  Step step;
  step.operation = Operation::kConcat;
  step.inputs = values;
  step.facts.input_gradients = InputGradients::kSlices;
  step.output.stride = shape_of(values.front()).stride;
  for (const int value : values)
    step.output.channels += shape_of(value).channels;
  return push(std::move(step));
}

int LayerProgram::upsample(int x) {
  Step step;
  step.operation = Operation::kUpsample;
  step.inputs = {x};
  step.output = {shape_of(x).channels, shape_of(x).stride / 2};
  return push(std::move(step));
}

int LayerProgram::fold(int x) {
  Step step;
  step.operation = Operation::kFold;
  step.inputs = {x};
  step.output = {4 * shape_of(x).channels, 2 * shape_of(x).stride};
  return push(std::move(step));
}

int LayerProgram::slice(int x, int64_t first_channel, int64_t channels) {
  HEADROOM_CHECK(first_channel + channels <= shape_of(x).channels,
                 cat(channels, " channels from ", first_channel, " on of ",
                     shape_of(x).channels));
  Step step;
  step.operation = Operation::kSlice;
  step.inputs = {x};
  step.first_channel = first_channel;
  step.output = {channels, shape_of(x).stride};
  step.facts.input_gradients = InputGradients::kOfAny;
  return push(std::move(step));
}

int LayerProgram::shuffle(int x, int64_t groups) {
  HEADROOM_CHECK(shape_of(x).channels % groups == 0,
                 cat(groups, " groups of ", shape_of(x).channels, " channels"));
  Step step;
  step.operation = Operation::kShuffle;
  step.inputs = {x};
  step.groups = groups;
  step.output = shape_of(x);
  return push(std::move(step));
}

}  // namespace headroom::layers
