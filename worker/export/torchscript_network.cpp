#include "worker/export/torchscript_network.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/jit/api/module.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <unordered_map>
#include <utility>
#include <vector>

#include "configs/row_modules.h"
#include "parallel/base/check.h"
#include "worker/export/folded_block.h"

namespace headroom {
namespace {

std::string list(const std::vector<std::string>& values) {
  std::string text = "[";
  for (const std::string& value : values) {
    text += (text.size() == 1 ? "" : ", ") + value;
  }
  return text + "]";
}

std::string pair(int64_t value) {
  return list({std::to_string(value), std::to_string(value)});
}

// The module's source, a statement per operation, and its buffers.
class Source {
 public:
  Source(torch::jit::Module& module, const ModelTable& table, LayerGraph& model,
         at::ScalarType type)
      : module_(module), table_(table), model_(model), type_(type) {
    for (const NamedTensor& entry : model.state()) {
      state_[entry.name] = *entry.tensor;
    }
  }

  // Of "forward".
  std::string text() {
    text_ = "def forward(self, images: Tensor) -> Tensor:\n";
    std::vector<std::string> outputs;
    for (size_t row = 0; row < table_.rows.size(); ++row) {
      std::vector<std::string> inputs;
      std::vector<MapShape> shapes;
      for (const int from : model_.inputs()[row]) {
        const auto at = static_cast<size_t>(from);
        inputs.push_back(from < 0 ? "images" : outputs[at]);
        shapes.push_back(from < 0 ? MapShape{table_.input_channels, 1}
                                  : model_.map_shapes()[at]);
      }
      outputs.push_back(table_.rows[row].module == kDetectModule
                            ? detect(row, inputs)
                            : run(row, inputs, shapes));
    }
    return text_ + "    return " + outputs.back() + "\n";
  }

 private:
  std::string run(size_t row, const std::vector<std::string>& inputs,
                  const std::vector<MapShape>& shapes) {
    const RowProgram program =
        row_program(table_, row, shapes, model_.num_classes());
    const std::string prefix = "model." + std::to_string(row) + ".";
    std::vector<std::string> values = inputs;
    for (const RowProgram::Step& step : program.steps) {
      std::vector<std::string> operands;
      for (const int input : step.inputs) {
        operands.push_back(values[static_cast<size_t>(input)]);
      }
      values.push_back(add(program, step, prefix, operands));
    }
    return values.back();
  }

  std::string add(const RowProgram& program, const RowProgram::Step& step,
                  const std::string& prefix,
                  const std::vector<std::string>& inputs) {
    using Operation = RowProgram::Operation;
    const std::string& x = inputs.front();
    switch (step.operation) {
      case Operation::kBlock: {
        const RowProgram::Block& block = program.blocks[step.block];
        const FoldedBlock folded = folded_block(state_, prefix + block.name);
        return activation(
            convolution(x, folded.weight, folded.bias, block.stride,
                        block.padding, block.groups),
            block.activation);
      }
      case Operation::kGrow: {
        const RowProgram::Block& block = program.blocks[step.block];
        const std::string name = prefix + block.name;
        return value("torch.conv_transpose2d(" + x + ", " +
                     buffer(state_.at(name + "weight")) + ", " +
                     buffer(state_.at(name + "bias")) + ", " +
                     pair(block.stride) + ", [0, 0], [0, 0], " +
                     std::to_string(block.groups) + ", [1, 1])");
      }
      case Operation::kPools:
        return pools(x, step.windows);
      case Operation::kAdd:
        return value("torch.add(" + x + ", " + inputs.at(1) + ")");
      case Operation::kConcat:
        return concat(inputs);
      case Operation::kUpsample:
        return value("torch.upsample_nearest2d(" + x + ", None, [2.0, 2.0])");
      case Operation::kFold:
        return concat({x + "[:, :, 0::2, 0::2]", x + "[:, :, 1::2, 0::2]",
                       x + "[:, :, 0::2, 1::2]", x + "[:, :, 1::2, 1::2]"});
      case Operation::kSlice:
        return value(x + "[:, " + std::to_string(step.first_channel) + ":" +
                     std::to_string(step.first_channel + step.output.channels) +
                     "]");
      case Operation::kShuffle:
        return value("torch.channel_shuffle(" + x + ", " +
                     std::to_string(step.groups) + ")");
    }
    HEADROOM_CHECK(false, "a step of no operation");
  }

  std::string activation(const std::string& y,
                         const ActivationFunction& function) {
    switch (function.kind) {
      case ActivationKind::kSilu:
        break;
      case ActivationKind::kLeaky:
        if (function == kIdentity) return y;
        if (function == kRelu) return value("torch.relu(" + y + ")");
        return value("torch.leaky_relu(" + y + ", " +
                     nlohmann::json(function.slope).dump() + ")");
      case ActivationKind::kHardswish:
        return value("torch.hardswish(" + y + ")");
      case ActivationKind::kMish:
        return value("torch.mish(" + y + ")");
    }
    return value("torch.silu(" + y + ")");
  }

  std::string convolution(const std::string& x, const at::Tensor& weight,
                          const at::Tensor& bias, int64_t stride,
                          int64_t padding, int64_t groups) {
    return value("torch.conv2d(" + x + ", " + buffer(weight) + ", " +
                 buffer(bias) + ", " + pair(stride) + ", " + pair(padding) +
                 ", [1, 1], " + std::to_string(groups) + ")");
  }

  std::string pools(const std::string& x, const std::vector<int64_t>& windows) {
    std::vector<std::string> maps = {x};
    for (const int64_t window : windows) {
      maps.push_back(value("torch.max_pool2d(" + maps.back() + ", " +
                           pair(window) + ", [1, 1], " + pair(window / 2) +
                           ")"));
    }
    return concat(maps);
  }

  std::string concat(const std::vector<std::string>& maps) {
    return value("torch.cat(" + list(maps) + ", 1)");
  }

  // [N, rows, 5 + classes]: rows by level, anchor, y, x.
  std::string detect(size_t row, const std::vector<std::string>& inputs) {
    const std::string fields = std::to_string(5 + model_.num_classes());
    std::vector<std::string> boxes;
    for (size_t i = 0; i < inputs.size(); ++i) {
      const std::string prefix =
          "model." + std::to_string(row) + ".m." + std::to_string(i) + ".";
      const LayerGraph::Level& level = model_.levels()[i];
      const std::string anchors = std::to_string(level.anchors.size());
      const std::string map =
          value(convolution(inputs[i], state_.at(prefix + "weight"),
                            state_.at(prefix + "bias"), 1, 0, 1) +
                (type_ == at::kHalf ? ".float()" : ""));
      const std::string size = map + ".size(0), " + anchors + ", " + map +
                               ".size(2), " + map + ".size(3)";
      const std::string s =
          value("torch.sigmoid(" + map + ").view([" + map + ".size(0), " +
                anchors + ", " + fields + ", " + map + ".size(2), " + map +
                ".size(3)]).permute([0, 1, 3, 4, 2])");
      const std::string x =
          value("torch.arange(" + map + ".size(3), dtype=" + map +
                ".dtype, device=" + map + ".device).expand([" + size + "])");
      const std::string y =
          value("torch.arange(" + map + ".size(2), dtype=" + map +
                ".dtype, device=" + map + ".device).view([-1, 1]).expand([" +
                size + "])");
      const std::string xy =
          value("(" + s + "[:, :, :, :, 0:2] * 2.0 - 0.5 + torch.stack([" + x +
                ", " + y + "], 4)) * " + std::to_string(level.stride) + ".0");
      const std::string wh =
          value("torch.square(" + s + "[:, :, :, :, 2:4] * 2.0) * " +
                anchor_buffer(level));
      boxes.push_back(value("torch.cat([" + xy + ", " + wh + ", " + s +
                            "[:, :, :, :, 4:]], 4).view([" + map +
                            ".size(0), -1, " + fields + "])"));
    }
    return concat(boxes);
  }

  std::string anchor_buffer(const LayerGraph::Level& level) {
    std::vector<double> sizes;
    for (const auto& [width, height] : level.anchors) {
      sizes.insert(sizes.end(), {width, height});
    }
    return add_buffer(
        at::tensor(sizes, type_ == at::kHalf ? at::kFloat : type_)
            .view({1, static_cast<int64_t>(level.anchors.size()), 1, 1, 2}));
  }

  std::string value(const std::string& expression) {
    const std::string name = "v" + std::to_string(num_values_++);
    text_ += "    " + name + " = " + expression + "\n";
    return name;
  }

  std::string buffer(const at::Tensor& values) {
    return add_buffer(values.detach().to(type_).contiguous().clone());
  }

  std::string add_buffer(const at::Tensor& values) {
    const std::string name = "b" + std::to_string(num_buffers_++);
    module_.register_buffer(name, values);
    return "self." + name;
  }

  torch::jit::Module& module_;
  const ModelTable& table_;
  LayerGraph& model_;
  const at::ScalarType type_;
  std::map<std::string, at::Tensor> state_;
  std::string text_;
  int num_values_ = 0, num_buffers_ = 0;
};

std::string config_text(const TorchscriptOptions& options, int64_t channels,
                        int64_t stride,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::json names = nlohmann::json::object();
  if (const auto said = metadata.find("names"); said != metadata.end()) {
    const auto given = nlohmann::json::parse(said->second, nullptr, false);
    for (size_t i = 0; given.is_array() && i < given.size(); ++i) {
      names[std::to_string(i)] = given[i];
    }
  }
  return nlohmann::json(
             {{"shape",
               {options.batch, channels, options.height, options.width}},
              {"stride", stride},
              {"names", names}})
      .dump();
}

}  // namespace

std::string make_torchscript_network(
    const ModelTable& table, LayerGraph& model,
    const TorchscriptOptions& options,
    const std::map<std::string, std::string>& metadata) {
  const at::NoGradGuard no_grad;
  torch::jit::Module module("__torch__.headroom.Detector");
  Source source(module, table, model, options.type);
  module.define(source.text());
  module.eval();
  std::ostringstream archive;
  module.save(archive,
              {{"config.txt", config_text(options, table.input_channels,
                                          model.max_stride(), metadata)}});
  return std::move(archive).str();
}

}  // namespace headroom
