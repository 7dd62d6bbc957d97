#include "worker/export/onnx_network.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <limits>
#include <utility>
#include <vector>

#include "configs/row_modules.h"
#include "parallel/base/check.h"
#include "worker/export/folded_block.h"

namespace headroom {
namespace {

using Attribute = OnnxNode::Attribute;

class Network {
 public:
  Network(OnnxGraph& graph, const ModelTable& table, LayerGraph& model,
          bool is_half)
      : graph_(graph),
        table_(table),
        num_classes_(model.num_classes()),
        is_half_(is_half) {
    for (const NamedTensor& entry : model.state()) {
      state_[entry.name] = *entry.tensor;
    }
  }

  // The output's name; for the head "" (its maps are heads()). `shapes`: of the
  // inputs.
  std::string add_row(size_t index, const std::vector<std::string>& inputs,
                      const std::vector<MapShape>& shapes) {
    const std::string prefix = "model." + std::to_string(index) + ".";
    if (table_.rows[index].module == kDetectModule) {
      for (size_t level = 0; level < inputs.size(); ++level) {
        const std::string name = prefix + "m." + std::to_string(level) + ".";
        heads_.push_back(convolution(inputs[level], name, at(name + "weight"),
                                     at(name + "bias"), {}));
      }
      return "";
    }
    const RowProgram program = row_program(table_, index, shapes, num_classes_);
    std::vector<std::string> values = inputs;
    for (const RowProgram::Step& step : program.steps) {
      std::vector<std::string> operands;
      for (const int input : step.inputs)
        operands.push_back(values[static_cast<size_t>(input)]);
      values.push_back(add_step(program, step, prefix, operands));
    }
    return values.back();
  }

  const std::vector<std::string>& heads() const { return heads_; }

 private:
  const at::Tensor& at(const std::string& name) const {
    return state_.at(name);
  }
  std::string add_step(const RowProgram& program, const RowProgram::Step& step,
                       const std::string& prefix,
                       const std::vector<std::string>& inputs) {
    using Operation = RowProgram::Operation;
    const std::string& x = inputs.front();
    switch (step.operation) {
      case Operation::kBlock:
        return block(x, prefix, program.blocks[step.block]);
      case Operation::kGrow:
        return grow(x, prefix, program.blocks[step.block]);
      case Operation::kPools:
        return pools(x, step.windows);
      case Operation::kAdd:
        return graph_.add("Add", inputs);
      case Operation::kConcat:
        return concat(inputs);
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

  std::string tensor(const std::string& name, const at::Tensor& values) {
    const at::Tensor stored =
        values.detach().to(is_half_ ? at::kHalf : at::kFloat).contiguous();
    OnnxTensor made;
    made.name = name;
    made.type = is_half_ ? OnnxType::kHalf : OnnxType::kFloat;
    made.dims = stored.sizes().vec();
    made.bytes.assign(static_cast<const char*>(stored.const_data_ptr()),
                      static_cast<size_t>(stored.nbytes()));
    graph_.tensors.push_back(std::move(made));
    return name;
  }

  std::string convolution(const std::string& x, const std::string& name,
                          const at::Tensor& weight, const at::Tensor& bias,
                          const RowProgram::Block& shape) {
    const int64_t kernel_h = weight.size(2), kernel_w = weight.size(3);
    return graph_.add(
        shape.grows ? "ConvTranspose" : "Conv",
        {x, tensor(name + "weight", weight), tensor(name + "bias", bias)},
        {{"kernel_shape", std::vector<int64_t>{kernel_h, kernel_w}},
         {"strides", std::vector<int64_t>{shape.stride, shape.stride}},
         {"pads", std::vector<int64_t>(4, shape.padding)},
         {"group", shape.groups}});
  }

  // Convolution and batch norm as one convolution, then the activation.
  std::string block(const std::string& x, const std::string& row,
                    const RowProgram::Block& shape) {
    const std::string prefix = row + shape.name;
    const FoldedBlock folded = folded_block(state_, prefix);
    return activation(
        convolution(x, prefix + "conv.", folded.weight, folded.bias, shape),
        shape.activation);
  }

  std::string activation(const std::string& y,
                         const ActivationFunction& function) {
    switch (function.kind) {
      case ActivationKind::kSilu:
        break;
      case ActivationKind::kLeaky:
        if (function == kIdentity) return y;
        if (function == kRelu) return graph_.add("Relu", {y});
        return graph_.add("LeakyRelu", {y},
                          {{"alpha", static_cast<float>(function.slope)}});
      case ActivationKind::kHardswish:
        return graph_.add("HardSwish", {y});
      case ActivationKind::kMish:
        return graph_.add(
            "Mul", {y, graph_.add("Tanh", {graph_.add("Softplus", {y})})});
    }
    return graph_.add("Mul", {y, graph_.add("Sigmoid", {y})});
  }

  std::string grow(const std::string& x, const std::string& row,
                   const RowProgram::Block& shape) {
    const std::string prefix = row + shape.name;
    RowProgram::Block unpadded = shape;
    unpadded.padding = 0;
    return convolution(x, prefix, at(prefix + "weight"), at(prefix + "bias"),
                       unpadded);
  }

  std::string concat(const std::vector<std::string>& maps) {
    return graph_.add("Concat", maps, {{"axis", int64_t{1}}});
  }

  std::string pools(const std::string& x, const std::vector<int64_t>& windows) {
    std::vector<std::string> maps = {x};
    for (const int64_t window : windows) {
      maps.push_back(
          graph_.add("MaxPool", {maps.back()},
                     {{"kernel_shape", std::vector<int64_t>{window, window}},
                      {"strides", std::vector<int64_t>{1, 1}},
                      {"pads", std::vector<int64_t>(4, window / 2)}}));
    }
    return concat(maps);
  }

  // Every second row, then column, from `row` and `column` on.
  std::string every_second(const std::string& x, int64_t row, int64_t column) {
    constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
    return graph_.add(
        "Slice",
        {x, graph_.integers({row, column}), graph_.integers({kEnd, kEnd}),
         graph_.integers({2, 3}), graph_.integers({2, 2})});
  }

  std::string slice(const std::string& x, int64_t begin, int64_t end) {
    return graph_.add("Slice", {x, graph_.integers({begin}),
                                graph_.integers({end}), graph_.integers({1})});
  }

  // [N, C, H W], then the groups and their channels change places.
  std::string shuffle(const std::string& x, int64_t groups, int64_t channels) {
    const std::string shape = graph_.add("Shape", {x});
    const std::string split = graph_.add(
        "Reshape", {x, graph_.integers({0, groups, channels / groups, -1})});
    const std::string turned = graph_.add(
        "Transpose", {split}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    return graph_.add("Reshape", {turned, shape});
  }

  std::string fold(const std::string& x) {
    return concat({every_second(x, 0, 0), every_second(x, 1, 0),
                   every_second(x, 0, 1), every_second(x, 1, 1)});
  }

  std::string upsample(const std::string& x) {
    return graph_.add(
        "Resize", {x, "", graph_.floats({1, 1, 2, 2}, {4})},
        {{"mode", std::string("nearest")},
         {"coordinate_transformation_mode", std::string("asymmetric")},
         {"nearest_mode", std::string("floor")}});
  }

  OnnxGraph& graph_;
  const ModelTable& table_;
  const int64_t num_classes_;
  bool is_half_;
  std::map<std::string, at::Tensor> state_;
  std::vector<std::string> heads_;
};

void check_size(int64_t size, int64_t stride) {
  if (size % stride == 0) return;
  throw Error("export",
              "an image side of " + std::to_string(size) +
                  " is no multiple of the model's largest stride, " +
                  std::to_string(stride),
              "give --img " + std::to_string((size / stride + 1) * stride));
}

}  // namespace

OnnxBody make_onnx_body(const ModelTable& table, LayerGraph& model,
                        const OnnxHeadOptions& options,
                        const std::map<std::string, std::string>& metadata) {
  const at::NoGradGuard no_grad;
  check_size(options.height, model.max_stride());
  check_size(options.width, model.max_stride());
  const auto size = [](int64_t known, const char* word) {
    return known > 0 ? std::variant<int64_t, std::string>(known)
                     : std::variant<int64_t, std::string>(word);
  };
  OnnxBody body;
  OnnxGraph& graph = body.graph;
  graph.name = table.name;
  graph.metadata = metadata;
  graph.metadata["stride"] = std::to_string(model.max_stride());
  graph.inputs.push_back(
      {"images",
       options.is_half ? OnnxType::kHalf : OnnxType::kFloat,
       {size(options.batch, "batch"), int64_t{table.input_channels},
        size(options.height, "height"), size(options.width, "width")}});

  Network network(graph, table, model, options.is_half);
  std::vector<std::string> outputs;
  for (size_t row = 0; row < table.rows.size(); ++row) {
    std::vector<std::string> inputs;
    std::vector<MapShape> shapes;
    for (const int from : model.inputs()[row]) {
      const auto at = static_cast<size_t>(from);
      inputs.push_back(from < 0 ? "images" : outputs[at]);
      shapes.push_back(from < 0 ? MapShape{table.input_channels, 1}
                                : model.map_shapes()[at]);
    }
    outputs.push_back(network.add_row(row, inputs, shapes));
  }
  for (size_t i = 0; i < network.heads().size(); ++i) {
    const LayerGraph::Level& level = model.levels()[i];
    body.levels.push_back({network.heads()[i], level.stride, level.anchors});
  }
  return body;
}

OnnxGraph with_head(OnnxBody body, const LayerGraph& model,
                    OnnxHeadOptions options) {
  options.num_classes = model.num_classes();
  add_head(body.graph, body.levels, options);
  return std::move(body.graph);
}

}  // namespace headroom
