#include "worker/export/onnx_network.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <limits>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "worker/export/exported_activation.h"
#include "worker/export/network_walk.h"

namespace headroom::exporter {
namespace {

class OnnxEmitter final : public NetworkEmitter {
 public:
  OnnxEmitter(OnnxBody& body, const model::LayerGraph& model, bool is_half)
      : body_(body), graph_(body.graph), model_(model), is_half_(is_half) {}

  Value convolution(const Value& x, const std::string& name,
                    const at::Tensor& weight, const at::Tensor& bias,
                    const layers::LayerProgram::Block& shape) override {
    const int64_t kernel_h = weight.size(2), kernel_w = weight.size(3);
    return graph_.add(
        shape.is_transposed ? "ConvTranspose" : "Conv",
        {x, tensor(name + "weight", weight), tensor(name + "bias", bias)},
        {{"kernel_shape", std::vector<int64_t>{kernel_h, kernel_w}},
         {"strides", std::vector<int64_t>{shape.stride, shape.stride}},
         {"pads", std::vector<int64_t>(4, shape.padding)},
         {"group", shape.groups}});
  }

  Value activation(const Value& y,
                   const layers::ActivationFunction& function) override {
    const ExportedActivation exported = exported_activation(function);
    Value x = y;
    for (const std::string& name : exported.onnx) {
      x = exported.slope
              ? graph_.add(name, {x},
                           {{"alpha", static_cast<float>(*exported.slope)}})
              : graph_.add(name, {x});
    }
    return exported.is_gate ? graph_.add("Mul", {y, x}) : x;
  }

  Value max_pool(const Value& x, int64_t window) override {
    return graph_.add("MaxPool", {x},
                      {{"kernel_shape", std::vector<int64_t>{window, window}},
                       {"strides", std::vector<int64_t>{1, 1}},
                       {"pads", std::vector<int64_t>(4, window / 2)}});
  }

  Value add(const Value& a, const Value& b) override {
    return graph_.add("Add", {a, b});
  }

  Value mean(const Value& x) override {
    return graph_.add("GlobalAveragePool", {x});
  }

  Value hard_sigmoid(const Value& x) override {
    return graph_.add("HardSigmoid", {x}, {{"alpha", 1.0F / 6}});
  }

  Value scale(const Value& x, const Value& factors) override {
    return graph_.add("Mul", {x, factors});
  }

  Value concat(const std::vector<Value>& maps) override {
    return graph_.add("Concat", maps, {{"axis", int64_t{1}}});
  }

  Value upsample(const Value& x) override {
    return graph_.add(
        "Resize", {x, "", graph_.floats({1, 1, 2, 2}, {4})},
        {{"mode", std::string("nearest")},
         {"coordinate_transformation_mode", std::string("asymmetric")},
         {"nearest_mode", std::string("floor")}});
  }

  Value every_second(const Value& x, int64_t row, int64_t column) override {
    constexpr int64_t kEnd = std::numeric_limits<int64_t>::max();
    return graph_.add(
        "Slice",
        {x, graph_.integers({row, column}), graph_.integers({kEnd, kEnd}),
         graph_.integers({2, 3}), graph_.integers({2, 2})});
  }

  Value slice(const Value& x, int64_t begin, int64_t end) override {
    return graph_.add("Slice", {x, graph_.integers({begin}),
                                graph_.integers({end}), graph_.integers({1})});
  }

  // Splits the channels into groups and exchanges the two axes.
  Value shuffle(const Value& x, int64_t groups, int64_t channels) override {
    const Value shape = graph_.add("Shape", {x});
    const Value split = graph_.add(
        "Reshape", {x, graph_.integers({0, groups, channels / groups, -1})});
    const Value turned = graph_.add(
        "Transpose", {split}, {{"perm", std::vector<int64_t>{0, 2, 1, 3}}});
    return graph_.add("Reshape", {turned, shape});
  }

  void head(size_t level, const Value& map) override {
    const model::LayerGraph::Level& made = model_.levels()[level];
    body_.levels.push_back({map, made.stride, made.anchors});
  }

 private:
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

  OnnxBody& body_;
  OnnxGraph& graph_;
  const model::LayerGraph& model_;
  const bool is_half_;
};

void check_size(int64_t size, int64_t stride) {
  if (size % stride == 0) return;
  throw Error("export",
              cat("an image side of ", size,
                  " is no multiple of the model's largest stride, ", stride),
              cat("give --img ", (size / stride + 1) * stride));
}

}  // namespace

OnnxBody make_onnx_body(const layers::ModelTable& table,
                        model::LayerGraph& model,
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

  OnnxEmitter emitter(body, model, options.is_half);
  walk_network(table, model, "images", emitter);
  return body;
}

OnnxGraph with_head(OnnxBody body, const model::LayerGraph& model,
                    OnnxHeadOptions options) {
  options.num_classes = model.num_classes();
  add_head(body.graph, body.levels, options);
  return std::move(body.graph);
}

}  // namespace headroom::exporter
