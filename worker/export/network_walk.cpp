#include "worker/export/network_walk.h"

#include <limits>

#include "configs/layers/detect_branches.h"
#include "configs/layers/layer_modules.h"
#include "configs/layers/table_layer.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "worker/export/exported_activation.h"
#include "worker/model/conv_block.h"

namespace headroom::exporter {
namespace {

using Value = NetworkEmitter::Value;
using Input = ExportedOperator::Input;
using Integers = std::vector<int64_t>;

std::string list(const std::vector<std::string>& values) {
  return "[" + joined(values, ", ") + "]";
}

std::string pair(int64_t value) { return cat("[", value, ", ", value, "]"); }

class Walk {
 public:
  Walk(model::LayerGraph& model, NetworkEmitter& emitter) : emitter_(emitter) {
    for (const model::NamedTensor& entry : model.state()) {
      state_[entry.name] = *entry.tensor;
    }
  }

  // `prefix` is the prefix of the layer's tensors in the state, "model.4.".
  Value run(const layers::LayerProgram& program, const std::string& prefix,
            std::vector<Value> values) {
    for (const layers::LayerProgram::Step& step : program.steps) {
      std::vector<Value> operands;
      for (const int input : step.inputs) {
        operands.push_back(values[static_cast<size_t>(input)]);
      }
      values.push_back(add_step(program, step, prefix, operands));
    }
    return values.back();
  }

  void detect(const std::string& prefix, const std::vector<Value>& levels) {
    for (size_t level = 0; level < levels.size(); ++level) {
      emitter_.head(level, plain_convolution(levels[level],
                                             cat(prefix, "m.", level, ".")));
    }
  }

 private:
  Value add_step(const layers::LayerProgram& program,
                 const layers::LayerProgram::Step& step,
                 const std::string& prefix, const std::vector<Value>& inputs) {
    using Operation = layers::LayerProgram::Operation;
    const Value& x = inputs.front();
    switch (step.operation) {
      case Operation::kBlock: {
        const layers::LayerProgram::Block& made = program.block_of(step);
        return block(x, prefix + made.name, made);
      }
      case Operation::kPools:
        return pools(x, step.windows);
      case Operation::kAdd:
        return emitter_.add({"Add",
                             {x, inputs.at(1)},
                             {},
                             cat("torch.add(", x, ", ", inputs.at(1), ")")});
      case Operation::kConcat:
        return concat(inputs, inputs);
      case Operation::kUpsample:
        return upsample(x);
      case Operation::kFold:
        return fold(x);
      case Operation::kSlice:
        return slice(x, step.first_channel,
                     step.first_channel + step.output.channels);
      case Operation::kShuffle:
        return shuffle(x, step.groups, step.output.channels);
    }
    HEADROOM_CHECK(false, "a step of no operation");
  }

  // `name` is the prefix of the block's tensors in the state.
  Value block(const Value& x, const std::string& name,
              const layers::LayerProgram::Block& made) {
    using Kind = layers::LayerProgram::BlockKind;
    switch (made.kind) {
      case Kind::kConv: {
        const FoldedBlock folded = folded_block(state_, name);
        return exported_activation(emitter_,
                                   convolution(x, name + "conv.", folded, made),
                                   made.activation);
      }
      case Kind::kTransposedConv:
        return transposed(x, name, made);
      case Kind::kSqueezeExcite:
        return squeeze_excite(x, name);
      case Kind::kOutputConv:
        return plain_convolution(x, name);
    }
    HEADROOM_CHECK(false, name + " is a block of no kind");
  }

  // The weight and bias of a convolution without a batch norm.
  FoldedBlock plain(const std::string& name) const {
    return {state_.at(name + "weight"), state_.at(name + "bias")};
  }

  // A 1x1 convolution with a bias and without a batch norm.
  Value plain_convolution(const Value& x, const std::string& name) {
    return convolution(x, name, plain(name), {});
  }

  // `name` is the prefix of weight and bias, "model.2.cv1.conv.".
  Value convolution(const Value& x, const std::string& name,
                    const FoldedBlock& values,
                    const layers::LayerProgram::Block& shape) {
    const Value weight = emitter_.tensor(name + "weight", values.weight);
    const Value bias = emitter_.tensor(name + "bias", values.bias);
    return emitter_.add(
        {"Conv",
         {x, weight, bias},
         convolution_attributes(values.weight, shape, shape.padding),
         cat("torch.conv2d(", x, ", ", weight, ", ", bias, ", ",
             pair(shape.stride), ", ", pair(shape.padding), ", [1, 1], ",
             shape.groups, ")")});
  }

  Value transposed(const Value& x, const std::string& name,
                   const layers::LayerProgram::Block& shape) {
    const FoldedBlock values = plain(name);
    const Value weight = emitter_.tensor(name + "weight", values.weight);
    const Value bias = emitter_.tensor(name + "bias", values.bias);
    return emitter_.add(
        {"ConvTranspose",
         {x, weight, bias},
         convolution_attributes(values.weight, shape, /*padding=*/0),
         cat("torch.conv_transpose2d(", x, ", ", weight, ", ", bias, ", ",
             pair(shape.stride), ", [0, 0], [0, 0], ", shape.groups,
             ", [1, 1])")});
  }

  static std::vector<std::pair<std::string, OnnxNode::Attribute>>
  convolution_attributes(const at::Tensor& weight,
                         const layers::LayerProgram::Block& shape,
                         int64_t padding) {
    return {{"kernel_shape", Integers{weight.size(2), weight.size(3)}},
            {"strides", Integers{shape.stride, shape.stride}},
            {"pads", Integers(4, padding)},
            {"group", shape.groups}};
  }

  // The factors of the channels are a hard sigmoid of a function of their means
  // over the cells.
  Value squeeze_excite(const Value& x, const std::string& name) {
    const Value means =
        emitter_.add({"GlobalAveragePool",
                      {x},
                      {},
                      cat("torch.mean(", x, ", [2, 3], True)")});
    const Value squeezed = exported_activation(
        emitter_, plain_convolution(means, name + "fc1."), layers::kRelu);
    const Value z = plain_convolution(squeezed, name + "fc2.");
    const Value factors =
        emitter_.add({"HardSigmoid",
                      {z},
                      {{"alpha", 1.0F / 6}},
                      cat("torch.clamp(", z, " / 6.0 + 0.5, 0.0, 1.0)")});
    return emitter_.add(
        {"Mul", {x, factors}, {}, cat("torch.mul(", x, ", ", factors, ")")});
  }

  Value pools(const Value& x, const std::vector<int64_t>& windows) {
    std::vector<Value> maps = {x};
    for (const int64_t window : windows) {
      maps.push_back(emitter_.add(
          {"MaxPool",
           {maps.back()},
           {{"kernel_shape", Integers{window, window}},
            {"strides", Integers{1, 1}},
            {"pads", Integers(4, window / 2)}},
           cat("torch.max_pool2d(", maps.back(), ", ", pair(window),
               ", [1, 1], ", pair(window / 2), ")")}));
    }
    return concat(maps, maps);
  }

  // `torch_maps` are TorchScript's expressions of the maps.
  Value concat(const std::vector<Value>& maps,
               const std::vector<std::string>& torch_maps) {
    return emitter_.add({"Concat",
                         std::vector<Input>(maps.begin(), maps.end()),
                         {{"axis", int64_t{1}}},
                         cat("torch.cat(", list(torch_maps), ", 1)")});
  }

  Value upsample(const Value& x) {
    return emitter_.add(
        {"Resize",
         {x, "", std::vector<float>{1, 1, 2, 2}},
         {{"mode", std::string("nearest")},
          {"coordinate_transformation_mode", std::string("asymmetric")},
          {"nearest_mode", std::string("floor")}},
         cat("torch.upsample_nearest2d(", x, ", None, [2.0, 2.0])")});
  }

  // Takes every second row and column of x, four times.
  Value fold(const Value& x) {
    constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
    std::vector<Value> cells;
    std::vector<std::string> torch_cells;
    for (const int64_t column : {0, 1}) {
      for (const int64_t row : {0, 1}) {
        cells.push_back(
            emitter_.add({"Slice",
                          {x, Integers{row, column}, Integers{kEnd, kEnd},
                           Integers{2, 3}, Integers{2, 2}}}));
        torch_cells.push_back(cat(x, "[:, :, ", row, "::2, ", column, "::2]"));
      }
    }
    return concat(cells, torch_cells);
  }

  Value slice(const Value& x, int64_t begin, int64_t end) {
    return emitter_.add({"Slice",
                         {x, Integers{begin}, Integers{end}, Integers{1}},
                         {},
                         cat(x, "[:, ", begin, ":", end, "]")});
  }

  // ONNX splits the channels into groups and exchanges the two axes.
  Value shuffle(const Value& x, int64_t groups, int64_t channels) {
    const Value shape = emitter_.add({"Shape", {x}});
    const Value split = emitter_.add(
        {"Reshape", {x, Integers{0, groups, channels / groups, -1}}});
    const Value turned =
        emitter_.add({"Transpose", {split}, {{"perm", Integers{0, 2, 1, 3}}}});
    return emitter_.add({"Reshape",
                         {turned, shape},
                         {},
                         cat("torch.channel_shuffle(", x, ", ", groups, ")")});
  }

  NetworkEmitter& emitter_;
  std::map<std::string, at::Tensor> state_;
};

}  // namespace

FoldedBlock folded_block(const std::map<std::string, at::Tensor>& state,
                         const std::string& prefix) {
  const auto exact = [&](const char* name) {
    return state.at(prefix + name).to(at::kDouble);
  };
  const at::Tensor scale =
      exact("bn.weight")
          .div(exact("bn.running_var").add(model::kBatchNormEpsilon).sqrt());
  return {exact("conv.weight").mul(scale.view({-1, 1, 1, 1})),
          exact("bn.bias").sub(exact("bn.running_mean").mul(scale))};
}

void walk_network(const layers::ModelTable& given, model::LayerGraph& model,
                  const Value& images, NetworkEmitter& emitter) {
  const layers::ModelTable table =
      layers::with_branches(given, model.num_classes());
  Walk walk(model, emitter);
  std::vector<Value> outputs;
  for (size_t layer = 0; layer < table.layers.size(); ++layer) {
    const std::string prefix = layers::state_prefix(table, layer);
    std::vector<Value> inputs;
    std::vector<layers::MapShape> shapes;
    for (const int from : model.inputs()[layer]) {
      const auto at = static_cast<size_t>(from);
      inputs.push_back(from < 0 ? images : outputs[at]);
      shapes.push_back(from < 0 ? layers::MapShape{table.input_channels, 1}
                                : model.map_shapes()[at]);
    }
    if (table.layers[layer].module == layers::kDetectModule) {
      if (model.has_anchors()) {
        walk.detect(prefix, inputs);
      } else {
        for (size_t i = 0; i < inputs.size(); ++i) emitter.head(i, inputs[i]);
      }
      outputs.push_back({});
    } else {
      outputs.push_back(walk.run(
          layers::layer_program(table, layer, shapes, model.num_classes()),
          prefix, std::move(inputs)));
    }
  }
}

}  // namespace headroom::exporter
