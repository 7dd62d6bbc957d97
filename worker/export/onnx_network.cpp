#include "worker/export/onnx_network.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "worker/model/conv_block.h"

namespace headroom {
namespace {

using Attribute = OnnxNode::Attribute;

class Network {
 public:
  Network(OnnxGraph& graph, const ModelTable& table, LayerGraph& model,
          bool is_half)
      : graph_(graph), table_(table), is_half_(is_half) {
    for (const NamedTensor& entry : model.state()) {
      state_[entry.name] = *entry.tensor;
    }
  }

  // The output's name; for the head "" (its maps are heads()).
  std::string add_row(size_t index, const std::vector<std::string>& inputs) {
    const ModelTable::Row& row = table_.rows[index];
    const std::string prefix = "model." + std::to_string(index) + ".";
    if (row.module == "Conv") {
      return conv(inputs.at(0), prefix, number(row, 2, 1), number(row, 3, -1));
    }
    if (row.module == "C3") return c3(row, inputs.at(0), prefix);
    if (row.module == "SPPF") return sppf(row, inputs.at(0), prefix);
    if (row.module == "nn.Upsample") return upsample(inputs.at(0));
    if (row.module == "Concat") return concat(inputs);
    if (row.module == "Detect") {
      for (size_t level = 0; level < inputs.size(); ++level) {
        const std::string name = prefix + "m." + std::to_string(level) + ".";
        heads_.push_back(convolution(inputs[level], name, at(name + "weight"),
                                     at(name + "bias"), 1, 0));
      }
      return "";
    }
    throw Error("export",
                to_string(row.place) + ": row " + std::to_string(index) +
                    ": module " + row.module + " has no ONNX counterpart here",
                "export a model of Conv, C3, SPPF, Upsample, Concat, Detect");
  }

  const std::vector<std::string>& heads() const { return heads_; }

 private:
  const at::Tensor& at(const std::string& name) const {
    return state_.at(name);
  }
  static int64_t number(const ModelTable::Row& row, size_t place,
                        int64_t otherwise) {
    return place < row.args.size()
               ? static_cast<int64_t>(std::get<double>(row.args[place]))
               : otherwise;
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
                          int64_t stride, int64_t padding) {
    const int64_t kernel_h = weight.size(2), kernel_w = weight.size(3);
    return graph_.add(
        "Conv",
        {x, tensor(name + "weight", weight), tensor(name + "bias", bias)},
        {{"kernel_shape", std::vector<int64_t>{kernel_h, kernel_w}},
         {"strides", std::vector<int64_t>{stride, stride}},
         {"pads", std::vector<int64_t>(4, padding)}});
  }

  // Convolution and batch norm as one convolution, then SiLU. padding -1: half
  // the kernel.
  std::string conv(const std::string& x, const std::string& prefix,
                   int64_t stride = 1, int64_t padding = -1) {
    const at::Tensor weight = at(prefix + "conv.weight").to(at::kDouble);
    const at::Tensor scale = at(prefix + "bn.weight")
                                 .to(at::kDouble)
                                 .div(at(prefix + "bn.running_var")
                                          .to(at::kDouble)
                                          .add(kBatchNormEpsilon)
                                          .sqrt());
    const at::Tensor bias =
        at(prefix + "bn.bias")
            .to(at::kDouble)
            .sub(at(prefix + "bn.running_mean").to(at::kDouble).mul(scale));
    const std::string y =
        convolution(x, prefix + "conv.", weight.mul(scale.view({-1, 1, 1, 1})),
                    bias, stride, padding >= 0 ? padding : weight.size(2) / 2);
    return graph_.add("Mul", {y, graph_.add("Sigmoid", {y})});
  }

  std::string concat(const std::vector<std::string>& maps) {
    return graph_.add("Concat", maps, {{"axis", int64_t{1}}});
  }

  std::string c3(const ModelTable::Row& row, const std::string& x,
                 const std::string& prefix) {
    // The table is read by the row's builder, which has refused other words.
    const bool shortcut =
        row.args.size() < 2 || !is_false(std::get<std::string>(row.args[1]));
    std::string y = conv(x, prefix + "cv1.");
    for (int64_t i = 0;; ++i) {
      const std::string inner = prefix + "m." + std::to_string(i) + ".";
      if (state_.count(inner + "cv1.conv.weight") == 0) break;
      const std::string z = conv(conv(y, inner + "cv1."), inner + "cv2.");
      y = shortcut ? graph_.add("Add", {y, z}) : z;
    }
    return conv(concat({y, conv(x, prefix + "cv2.")}), prefix + "cv3.");
  }
  static bool is_false(const std::string& word) {
    return !word.empty() && (word[0] == 'F' || word[0] == 'f');
  }

  std::string sppf(const ModelTable::Row& row, const std::string& x,
                   const std::string& prefix) {
    const int64_t window = number(row, 1, 5);
    std::vector<std::string> maps = {conv(x, prefix + "cv1.")};
    for (int i = 0; i < 3; ++i) {
      maps.push_back(
          graph_.add("MaxPool", {maps.back()},
                     {{"kernel_shape", std::vector<int64_t>{window, window}},
                      {"strides", std::vector<int64_t>{1, 1}},
                      {"pads", std::vector<int64_t>(4, window / 2)}}));
    }
    return conv(concat(maps), prefix + "cv2.");
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

OnnxGraph make_onnx_network(
    const ModelTable& table, LayerGraph& model, OnnxHeadOptions options,
    const std::map<std::string, std::string>& metadata) {
  const at::NoGradGuard no_grad;
  check_size(options.height, model.max_stride());
  check_size(options.width, model.max_stride());
  options.num_classes = model.num_classes();
  const auto size = [](int64_t known, const char* word) {
    return known > 0 ? std::variant<int64_t, std::string>(known)
                     : std::variant<int64_t, std::string>(word);
  };
  OnnxGraph graph;
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
    for (const int from : model.inputs()[row]) {
      inputs.push_back(from < 0 ? "images"
                                : outputs[static_cast<size_t>(from)]);
    }
    outputs.push_back(network.add_row(row, inputs));
  }
  std::vector<OnnxLevel> levels;
  for (size_t i = 0; i < network.heads().size(); ++i) {
    const LayerGraph::Level& level = model.levels()[i];
    levels.push_back({network.heads()[i], level.stride, level.anchors});
  }
  add_head(graph, levels, options);
  return graph;
}

}  // namespace headroom
