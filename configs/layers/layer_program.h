// LayerProgram: a layer of a model as a straight line of operations on maps.
//
// Each module of the table (C3, SPPF, C3Ghost) is defined once, by its
// operations (configs/layers/layer_modules.h). The network runs the program on
// tensors, the memory model on sizes, the export on names, and the costs count
// its steps, so these parts need to know only the operations below.
//
// Values are numbered: first the layer's inputs, then the output of each step.
// The value of the last step is the layer's output.
//
//   kBlock      a part with parameters, of one of the kinds below
//   kPools      x, p1(x), p2(p1(x)), … side by side; max-pools of stride 1
//   kAdd        the sum of two maps
//   kConcat     joins maps along channels
//   kUpsample   nearest neighbour, by 2
//   kFold       joins four neighbouring cells into one with four times the
//               channels: (even row, even column), (odd, even), (even, odd),
//               (odd, odd)
//   kSlice      takes a range of channels
//   kShuffle    moves channel i * (C / g) + j to j * g + i, which spreads each
//               of the g groups over all channels
//
// Kinds of blocks:
//
//   kConv             convolution, batch norm, activation
//   kTransposedConv   transposed convolution with a bias; kernel and stride are
//                     equal
//   kSqueezeExcite    squeeze and excitation: each channel times a factor
//                     computed from the means of all channels over the image
//   kOutputConv       1x1 convolution with a bias, which ends a detection head:
//                     its output is float32 if maps have 16 bits
//
// A new kind needs a function that declares it with its counts. The compiler
// names the switches that lack the kind: run_block() here, its tensors
// (worker/model/convolution_modules.cpp), its memory
// (parallel/predict/blocks.cpp), its export (worker/export/network_walk.cpp)
// and pruning (worker/more_tools/channel_graph.cpp).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "configs/layers/activation.h"

namespace headroom::layers {

// The properties of a map that do not depend on the image.
struct MapShape {
  int64_t channels = 0;
  int64_t stride = 1;  // image pixels per cell

  bool operator==(const MapShape&) const = default;
};

// The maps between a layer's inputs and its output. Recomputing the layer saves
// their memory.
enum class LayerInside { kNothing, kOneConvolution, kSeveralMaps };

struct LayerProgram {
  enum class Operation {
    kBlock,
    kPools,
    kAdd,
    kConcat,
    kUpsample,
    kFold,
    kSlice,
    kShuffle
  };

  enum class BlockKind { kConv, kTransposedConv, kSqueezeExcite, kOutputConv };

  // A part with parameters, for example a convolution with its batch norm.
  struct Block {
    std::string name;  // name in the layer's state, "m.0.cv1."
    int64_t in_channels = 0;
    int64_t channels = 0;
    int64_t kernel = 1;
    int64_t stride = 1;
    int64_t padding = 0;
    int64_t groups = 1;  // groups of the convolution
    ActivationFunction activation = {};
    int64_t squeezed = 0;   // channels between kSqueezeExcite's products
    double first_bias = 0;  // kOutputConv: every bias before training

    // The function that declares the block sets the kind and its counts.
    BlockKind kind = BlockKind::kConv;
    int64_t weights = 0;  // elements of the convolutions' weights together
    std::vector<int64_t> parameters = {};  // elements of each parameter tensor
    int64_t norm_channels = 0;             // channels with running statistics
  };

  // The gradients of an operation's inputs.
  enum class InputGradients {
    // New maps, computed from saved inputs.
    kFromInputs,
    // Every input gets the output's gradient itself.
    kShared,
    // Every input gets a view of its channels of the output's gradient.
    kSlices,
    // New maps, from a dense output gradient: a view is copied.
    kOfDense,
    // New maps, from an output gradient that may be a view.
    kOfAny
  };

  // The properties of a step that planner and memory model read, so that they
  // do not depend on the step's operation. The function that adds the step sets
  // the properties. The defaults describe a step without work whose output can
  // be recomputed from its inputs.
  struct StepFacts {
    InputGradients input_gradients = InputGradients::kOfDense;
    // Elements per pixel kept until backward, in addition to inputs and output.
    double kept_elements_per_pixel = 0;
    double multiply_adds_per_pixel = 0;
    // Whether forward sums each channel over the ranks that share an image.
    bool sums_channels = false;
    // For images split over ranks: rows x channels of each halo exchange.
    std::vector<int64_t> halo_channel_rows;
  };

  struct Step {
    Operation operation = Operation::kBlock;
    std::vector<int> inputs;       // numbers of the input values
    std::optional<size_t> block;   // the step's block, as an index in `blocks`
    std::vector<int64_t> windows;  // kPools only: an odd window per pooling
    int64_t first_channel = 0;  // kSlice only: the first channel of the range
    int64_t groups = 1;         // kShuffle only: the number of groups
    MapShape output;
    StepFacts facts;

    // If false, the step keeps nothing, because its output can be recomputed
    // from its inputs.
    bool keeps_inputs() const {
      return facts.input_gradients == InputGradients::kFromInputs;
    }
  };

  std::vector<MapShape> inputs;
  std::vector<Block> blocks;  // ordered as in the layer's state
  std::vector<Step> steps;    // in the order of execution

  int num_values() const {
    return static_cast<int>(inputs.size() + steps.size());
  }
  const MapShape& shape_of(int value) const;
  const MapShape& output() const { return shape_of(num_values() - 1); }
  // REQUIRES: the step runs a block.
  const Block& block_of(const Step& step) const { return blocks[*step.block]; }
  // released[s]: the values whose last reader is step s. The layer's output is
  // in none of the lists.
  std::vector<std::vector<int>> released() const;

  LayerInside inside() const;

  // --- building a program ---
  // Each of these functions adds a block of one kind and returns its index in
  // `blocks`. The layer's state has the order of these calls.
  size_t declare_conv(Block block);
  size_t declare_transposed_conv(Block block);  // REQUIRES: kernel == stride
  size_t declare_squeeze_excite(std::string name, int64_t channels,
                                int64_t squeezed);
  size_t declare_output_conv(std::string name, int64_t in_channels,
                             int64_t channels, double first_bias);
  // Each function below adds a step and returns the number of its output value.
  int run_block(size_t block, int x);
  int pools(int x, std::vector<int64_t> windows);
  int add(int a, int b);
  int concatenate(const std::vector<int>& values);
  int upsample(int x);  // REQUIRES: an even stride
  int fold(int x);
  int slice(int x, int64_t first_channel, int64_t channels);
  int shuffle(int x, int64_t groups);

 private:
  size_t declare(Block block);
  int push(Step step);
};

// Elements of the map per image pixel.
double elements_per_pixel(const MapShape& map);

}  // namespace headroom::layers
