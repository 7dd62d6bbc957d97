#include "worker/export/onnx_runner.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/hardswish.h>
#include <ATen/ops/leaky_relu.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/mean.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/round.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/softplus.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/tensor.h>
#include <ATen/ops/upsample_nearest2d.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <utility>

#include "parallel/base/check.h"

namespace headroom::exporter {
namespace {

at::ScalarType stored_type(OnnxType type) {
  switch (type) {
    case OnnxType::kFloat:
      return at::kFloat;
    case OnnxType::kUint8:
      return at::kByte;
    case OnnxType::kInt8:
      return at::kChar;
    case OnnxType::kInt32:
      return at::kInt;
    case OnnxType::kInt64:
      return at::kLong;
    case OnnxType::kHalf:
      return at::kHalf;
  }
  return at::kFloat;
}

at::Tensor tensor_of(const OnnxTensor& stored, at::ScalarType type) {
  const at::Tensor values =
      at::empty(stored.dims, at::TensorOptions(stored_type(stored.type)));
  std::memcpy(values.mutable_data_ptr(), stored.bytes.data(),
              stored.bytes.size());
  return values.to(type);
}

template <class T>
const T& attribute(const OnnxNode& node, const std::string& name) {
  for (const auto& [key, value] : node.attributes) {
    if (key == name) return std::get<T>(value);
  }
  HEADROOM_CHECK(false, node.op + " has no attribute " + name);
}

using Sizes = std::vector<int64_t>;

// Reshapes `values` to broadcast over `x`: one value per index of `axis`, or a
// single value.
at::Tensor along(const at::Tensor& values, const at::Tensor& x, int64_t axis) {
  if (values.dim() == 0) return values;
  Sizes shape(static_cast<size_t>(x.dim()), 1);
  shape[static_cast<size_t>(axis)] = values.numel();
  return values.view(shape);
}

// Reads whole numbers, as ONNX passes sizes and positions.
Sizes integers_in(const at::Tensor& values) {
  Sizes result;
  for (int64_t i = 0; i < values.numel(); ++i) {
    // The number that ONNX uses for "to the end" is too large to be exact as a
    // float.
    constexpr double kEnd = 1e15;
    result.push_back(
        static_cast<int64_t>(std::min(values[i].item<double>(), kEnd)));
  }
  return result;
}

at::Tensor sliced(at::Tensor x, const Sizes& begins, const Sizes& ends,
                  const Sizes& axes, const Sizes& steps) {
  for (size_t i = 0; i < axes.size(); ++i) {
    const int64_t size = x.size(axes[i]);
    x = x.slice(axes[i], begins[i], std::min(ends[i], size),
                steps.empty() ? 1 : steps[i]);
  }
  return x;
}

// Reshapes as in ONNX: a size of 0 keeps the old size, and -1 stands for the
// rest of the elements.
at::Tensor reshaped(const at::Tensor& x, Sizes sizes) {
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 0) sizes[i] = x.size(static_cast<int64_t>(i));
  }
  return x.reshape(sizes);
}

}  // namespace

OnnxRunner::OnnxRunner(const OnnxGraph& graph, at::ScalarType type)
    : graph_(graph), type_(type) {
  const at::NoGradGuard no_grad;
  for (const OnnxTensor& tensor : graph.tensors) {
    constants_[tensor.name] = tensor_of(tensor, type);
  }
  for (const OnnxNode& node : graph.nodes) {
    const bool is_constant = std::all_of(
        node.inputs.begin(), node.inputs.end(),
        [this](const auto& name) { return constants_.count(name) > 0; });
    if (is_constant) {
      constants_[node.outputs.front()] = run_node(node, {});
    }
  }
}

at::Tensor OnnxRunner::input(const OnnxNode& node, size_t place,
                             const Values& values) const {
  const std::string& name = node.inputs.at(place);
  const auto constant = constants_.find(name);
  if (constant != constants_.end()) return constant->second;
  const auto value = values.find(name);
  HEADROOM_CHECK(value != values.end(), node.op + " reads " + name);
  return value->second;
}

at::Tensor OnnxRunner::run_node(const OnnxNode& node,
                                const Values& values) const {
  const auto in = [&](size_t place) { return input(node, place, values); };
  if (node.op == "Conv") {
    const Sizes& pads = attribute<Sizes>(node, "pads");
    return at::conv2d(in(0), in(1), in(2), attribute<Sizes>(node, "strides"),
                      at::IntArrayRef{pads[0], pads[1]}, {1, 1},
                      attribute<int64_t>(node, "group"));
  }
  if (node.op == "Sigmoid") return at::sigmoid(in(0));
  if (node.op == "Relu") return at::relu(in(0));
  if (node.op == "LeakyRelu") {
    return at::leaky_relu(in(0), attribute<float>(node, "alpha"));
  }
  if (node.op == "HardSwish") return at::hardswish(in(0));
  if (node.op == "HardSigmoid") {
    return in(0).mul(attribute<float>(node, "alpha")).add_(0.5).clamp_(0, 1);
  }
  if (node.op == "Softplus") return at::softplus(in(0));
  if (node.op == "Tanh") return at::tanh(in(0));
  if (node.op == "GlobalAveragePool") {
    return at::mean(in(0), at::IntArrayRef{2, 3}, /*keepdim=*/true);
  }
  if (node.op == "Slice") {
    return sliced(in(0), integers_in(in(1)), integers_in(in(2)),
                  integers_in(in(3)),
                  node.inputs.size() > 4 ? integers_in(in(4)) : Sizes());
  }
  if (node.op == "Shape") return at::tensor(in(0).sizes()).to(type_);
  if (node.op == "Reshape") return reshaped(in(0), integers_in(in(1)));
  if (node.op == "Transpose")
    return in(0).permute(attribute<Sizes>(node, "perm"));
  if (node.op == "Mul") return at::mul(in(0), in(1));
  if (node.op == "Add") return at::add(in(0), in(1));
  if (node.op == "Concat") {
    std::vector<at::Tensor> parts;
    for (size_t i = 0; i < node.inputs.size(); ++i) parts.push_back(in(i));
    return at::cat(parts, attribute<int64_t>(node, "axis"));
  }
  if (node.op == "MaxPool") {
    const Sizes& pads = attribute<Sizes>(node, "pads");
    return at::max_pool2d(in(0), attribute<Sizes>(node, "kernel_shape"),
                          attribute<Sizes>(node, "strides"),
                          at::IntArrayRef{pads[0], pads[1]});
  }
  if (node.op == "Resize") {  // nearest neighbour, to twice the size
    const at::Tensor x = in(0);
    return at::upsample_nearest2d(x, {2 * x.size(2), 2 * x.size(3)}, 2.0, 2.0);
  }
  if (node.op == "QuantizeLinear") {
    const at::Tensor x = in(0);
    return at::clamp(at::round(x.div(in(1))).add_(in(2)), 0, 255);
  }
  if (node.op == "DequantizeLinear") {
    const at::Tensor x = in(0);
    const at::Tensor scale = in(1), zero = in(2);
    const int64_t axis =
        scale.dim() == 0 ? 0 : attribute<int64_t>(node, "axis");
    return x.sub(along(zero, x, axis)).mul_(along(scale, x, axis));
  }
  throw Error("export", "operator " + node.op + " cannot be simulated",
              "export without --int8");
}

std::vector<at::Tensor> OnnxRunner::run(const at::Tensor& images,
                                        const std::vector<std::string>& wanted,
                                        const Observer& observer) {
  const at::NoGradGuard no_grad;
  std::map<std::string, size_t> readers;
  for (const std::string& name : wanted) ++readers[name];
  for (const OnnxNode& node : graph_.nodes) {
    for (const std::string& name : node.inputs) ++readers[name];
  }
  Values values = {
      {graph_.inputs.front().name,
       images.to(type_).contiguous(at::MemoryFormat::ChannelsLast)}};
  for (const OnnxNode& node : graph_.nodes) {
    const std::string& name = node.outputs.front();
    if (constants_.count(name) > 0) continue;
    at::Tensor value = run_node(node, values);
    if (observer) observer(name, value);
    values[name] = std::move(value);
    for (const std::string& read : node.inputs) {
      if (--readers[read] == 0) values.erase(read);
    }
  }
  std::vector<at::Tensor> result;
  for (const std::string& name : wanted) result.push_back(values.at(name));
  return result;
}

std::function<std::vector<at::Tensor>(const at::Tensor& images)>
simulated_heads(const OnnxBody& body) {
  const auto kept = std::make_shared<const OnnxBody>(body);
  const auto runner = std::make_shared<OnnxRunner>(kept->graph, at::kFloat);
  return [kept, runner](const at::Tensor& images) {
    std::vector<std::string> maps;
    for (const OnnxLevel& level : kept->levels) maps.push_back(level.map);
    for (const OnnxLevel& level : kept->levels) {
      if (!level.classes.empty()) maps.push_back(level.classes);
    }
    std::vector<at::Tensor> heads = runner->run(images, maps);
    if (kept->levels.front().anchors.empty()) return heads;
    for (size_t i = 0; i < heads.size(); ++i) {
      const at::Tensor& map = heads[i];
      const auto anchors = static_cast<int64_t>(kept->levels[i].anchors.size());
      heads[i] = map.contiguous()
                     .view({map.size(0), anchors, map.size(1) / anchors,
                            map.size(2), map.size(3)})
                     .permute({0, 1, 3, 4, 2})
                     .contiguous();
    }
    return heads;
  };
}

}  // namespace headroom::exporter
