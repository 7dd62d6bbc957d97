// LayerProgram: a layer of a model as a straight line of operations on maps.
//
// A module of the table (C3, SPPF, C3Ghost) is written once, as what it is
// composed of (configs/layers/layer_modules.h). The network runs the program on
// tensors, the memory model on sizes, the export on names; the costs count its
// steps. Each of them has only the operations below, and no modules.
//
// Values are numbered: the layer's inputs first, then what each step makes. The
// last step's value is the layer's output.
//
//   kBlock      convolution, batch norm, activation
//   kTransposedConv   transposed convolution with a bias; kernel and stride are
//                     equal
//   kSqueezeExcite    squeeze and excitation: each channel times a factor that
//                     follows from the means of all channels over the image
//   kPools      x, p1(x), p2(p1(x)), … side by side; max-pools of stride 1
//   kAdd        of two maps
//   kConcat     along channels
//   kUpsample   nearest neighbour, by 2
//   kFold       four neighbouring cells to one of four times the channels:
//               (even row, even column), (odd, even), (even, odd), (odd, odd)
//   kSlice      some neighbouring channels
//   kShuffle    channels c = i * (C / g) + j to j * g + i: each of g groups
//               spread over all
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace headroom::layers {

// ActivationFunction: what follows batch norm in a convolution block, as a
// value.
//
// ReLU, LeakyReLU and the identity are one: z where it is positive, slope * z
// where it is not.

enum class ActivationKind { kSilu, kLeaky, kHardswish, kMish };

struct ActivationFunction {
  ActivationKind kind = ActivationKind::kSilu;
  double slope = 0;  // kLeaky's slope: 0 ReLU, 1 the identity

  bool operator==(const ActivationFunction&) const = default;
};

inline constexpr ActivationFunction kIdentity = {ActivationKind::kLeaky, 1};
inline constexpr ActivationFunction kRelu = {ActivationKind::kLeaky, 0};

// What is known of a map before there are images.
struct MapShape {
  int64_t channels = 0;
  int64_t stride = 1;  // image pixels per cell

  bool operator==(const MapShape&) const = default;
};

// The maps between a layer's inputs and its output: recomputing the layer saves
// their memory.
enum class LayerInside { kNothing, kOneConvolution, kSeveralMaps };

struct LayerProgram {
  // What has parameters: a convolution of kBlock or kTransposedConv, or
  // kSqueezeExcite's two products of means.
  struct Block {
    std::string name;  // "m.0.cv1.": its name in the layer's state
    int64_t in_channels = 0;
    int64_t channels = 0;
    int64_t kernel = 1;
    int64_t stride = 1;
    int64_t padding = 0;
    int64_t groups = 1;  // each reads and makes its share of the channels
    ActivationFunction activation = {};
    // True for kTransposedConv, which has a bias and no batch norm.
    bool is_transposed = false;
    int64_t squeezed = 0;  // Channels between kSqueezeExcite's two products.

    int64_t weights() const {
      return squeezed > 0 ? 2 * squeezed * channels
                          : kernel * kernel * in_channels / groups * channels;
    }
    int64_t parameters() const {
      return weights() + squeezed + channels + norm_channels();
    }
    int64_t parameter_tensors() const {
      return squeezed > 0 ? 4 : is_transposed ? 2 : 3;
    }
    int64_t norm_channels() const {
      return is_transposed || squeezed > 0 ? 0 : channels;
    }
  };

  // What backward gives the inputs of an operation.
  enum class InputGradients {
    // Maps of the operation's own making, from what it kept of its inputs.
    kFromInputs,
    // The output's gradient itself, to each.
    kShared,
    // Each its channels of the output's gradient, in place.
    kSlices,
    // New maps, from an output gradient that is dense: a slice is copied.
    kOfDense,
    // New maps, from an output gradient that may be a slice.
    kOfAny
  };

  // What planner and memory model know of a step. The function that adds the
  // step says it, so that they need not know the operation. The defaults are
  // those of a step without work whose output follows from its inputs.
  struct StepFacts {
    InputGradients input_gradients = InputGradients::kOfDense;
    // Elements kept until backward beside inputs and output, per pixel.
    double kept_elements_per_pixel = 0;
    double multiply_adds_per_pixel = 0;
    // Forward adds up numbers per channel over the ranks of an image.
    bool sums_channels = false;
    // Where ranks split an image: rows x channels of each exchange.
    std::vector<int64_t> halo_channel_rows;
  };

  enum class Operation {
    kBlock,
    kTransposedConv,
    kSqueezeExcite,
    kPools,
    kAdd,
    kConcat,
    kUpsample,
    kFold,
    kSlice,
    kShuffle
  };
  struct Step {
    Operation operation = Operation::kBlock;
    std::vector<int> inputs;  // values
    // The place in `blocks` of the block that kBlock, kTransposedConv or
    // kSqueezeExcite runs.
    size_t block = 0;
    std::vector<int64_t> windows;  // kPools' windows: odd, one per pooling
    int64_t first_channel = 0;     // the first channel that kSlice takes
    int64_t groups = 1;            // kShuffle's groups
    MapShape output;
    StepFacts facts;

    // False: nothing is kept, and the output can be made again from the inputs.
    bool keeps_inputs() const {
      return facts.input_gradients == InputGradients::kFromInputs;
    }
  };

  std::vector<MapShape> inputs;
  std::vector<Block> blocks;  // blocks as the state orders them
  std::vector<Step> steps;    // steps as they run

  int num_values() const {
    return static_cast<int>(inputs.size() + steps.size());
  }
  const MapShape& shape_of(int value) const;
  const MapShape& output() const { return shape_of(num_values() - 1); }
  // released[s]: the values that no step after the start of step s reads. The
  // output is in none of the lists.
  std::vector<std::vector<int>> released() const;

  LayerInside inside() const;

  // Building.
  // declare() returns a block's place in `blocks`. The blocks of the layer's
  // state have the order of these calls.
  size_t declare(Block block);
  // Each adds a step and returns its value.
  int run_block(size_t block, int x);
  int pools(int x, std::vector<int64_t> windows);
  int add(int a, int b);
  int concatenate(const std::vector<int>& values);
  int upsample(int x);  // REQUIRES: an even stride
  int fold(int x);
  int slice(int x, int64_t first_channel, int64_t channels);
  int shuffle(int x, int64_t groups);

 private:
  int push(Step step);
};

// Elements per pixel of an image of a map of this shape.
double elements_per_pixel(const MapShape& map);

// An activation function by the name that a model file gives it, as PyTorch
// writes it: "nn.LeakyReLU(0.1)"; "nn." and empty parentheses may be missing.
// Nothing for another name, or an argument that it does not take.
std::optional<ActivationFunction> parse_activation(std::string_view name);

// The name to write into a model file.
std::string activation_text(const ActivationFunction& activation);

// What a refusal lists: "nn.SiLU(), nn.ReLU(), ...".
std::string known_activations();

}  // namespace headroom::layers
