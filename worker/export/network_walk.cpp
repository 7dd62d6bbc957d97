#include "worker/export/network_walk.h"

#include "configs/layers/layer_modules.h"
#include "configs/layers/table_layer.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "worker/model/conv_block.h"

namespace headroom::exporter {
namespace {

using Value = NetworkEmitter::Value;

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
      emitter_.head(
          level,
          plain_convolution(levels[level], cat(prefix, "m.", level, "."), {}));
    }
  }

 private:
  Value add_step(const layers::LayerProgram& program,
                 const layers::LayerProgram::Step& step,
                 const std::string& prefix, const std::vector<Value>& inputs) {
    using Operation = layers::LayerProgram::Operation;
    const Value& x = inputs.front();
    switch (step.operation) {
      case Operation::kBlock:
        return block(x, prefix, program.block_of(step));
      case Operation::kTransposedConv: {
        layers::LayerProgram::Block shape = program.block_of(step);
        shape.padding = 0;
        return plain_convolution(x, prefix + shape.name, shape);
      }
      case Operation::kSqueezeExcite:
        return squeeze_excite(x, prefix + program.block_of(step).name);
      case Operation::kPools:
        return pools(x, step.windows);
      case Operation::kAdd:
        return emitter_.add(x, inputs.at(1));
      case Operation::kConcat:
        return emitter_.concat(inputs);
      case Operation::kUpsample:
        return emitter_.upsample(x);
      case Operation::kFold:
        return fold(x);
      case Operation::kSlice:
        return emitter_.slice(x, step.first_channel,
                              step.first_channel + step.output.channels);
      case Operation::kShuffle:
        return emitter_.shuffle(x, step.groups, step.output.channels);
    }
    HEADROOM_CHECK(false, "a step of no operation");
  }

  Value block(const Value& x, const std::string& prefix,
              const layers::LayerProgram::Block& shape) {
    const std::string name = prefix + shape.name;
    const FoldedBlock folded = folded_block(state_, name);
    return emitter_.activation(
        emitter_.convolution(x, name + "conv.", folded.weight, folded.bias,
                             shape),
        shape.activation);
  }

  // A convolution with a bias and without a batch norm.
  Value plain_convolution(const Value& x, const std::string& name,
                          const layers::LayerProgram::Block& shape) {
    return emitter_.convolution(x, name, state_.at(name + "weight"),
                                state_.at(name + "bias"), shape);
  }

  Value squeeze_excite(const Value& x, const std::string& name) {
    const Value squeezed = emitter_.activation(
        plain_convolution(emitter_.mean(x), name + "fc1.", {}), layers::kRelu);
    return emitter_.scale(x, emitter_.hard_sigmoid(plain_convolution(
                                 squeezed, name + "fc2.", {})));
  }

  Value pools(const Value& x, const std::vector<int64_t>& windows) {
    std::vector<Value> maps = {x};
    for (const int64_t window : windows) {
      maps.push_back(emitter_.max_pool(maps.back(), window));
    }
    return emitter_.concat(maps);
  }

  Value fold(const Value& x) {
    std::vector<Value> cells;
    for (const int64_t column : {0, 1}) {
      for (const int64_t row : {0, 1}) {
        cells.push_back(emitter_.every_second(x, row, column));
      }
    }
    return emitter_.concat(cells);
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

void walk_network(const layers::ModelTable& table, model::LayerGraph& model,
                  const Value& images, NetworkEmitter& emitter) {
  Walk walk(model, emitter);
  std::vector<Value> outputs;
  for (size_t layer = 0; layer < table.layers.size(); ++layer) {
    const std::string prefix = cat("model.", layer, ".");
    std::vector<Value> inputs;
    std::vector<layers::MapShape> shapes;
    for (const int from : model.inputs()[layer]) {
      const auto at = static_cast<size_t>(from);
      inputs.push_back(from < 0 ? images : outputs[at]);
      shapes.push_back(from < 0 ? layers::MapShape{table.input_channels, 1}
                                : model.map_shapes()[at]);
    }
    if (table.layers[layer].module == layers::kDetectModule) {
      walk.detect(prefix, inputs);
      outputs.push_back({});
    } else {
      outputs.push_back(walk.run(
          layers::layer_program(table, layer, shapes, model.num_classes()),
          prefix, std::move(inputs)));
    }
  }
}

}  // namespace headroom::exporter
