#include "worker/export/quantised_network.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>
#include <utility>
#include <vector>

#include "parallel/base/check.h"

namespace headroom::exporter {
namespace {

constexpr double kLargestInt8 = 127, kLargestUint8 = 255;

// Whether the operator only moves numbers, so that its output keeps the input's
// scale.
bool keeps_numbers(const std::string& op) {
  static const std::set<std::string> all = {"MaxPool", "Resize", "Slice",
                                            "Reshape", "Transpose"};
  return all.count(op) > 0;
}

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::vector<float> floats_of(const OnnxTensor& tensor) {
  std::vector<float> values(tensor.bytes.size() / sizeof(float));
  std::memcpy(values.data(), tensor.bytes.data(), tensor.bytes.size());
  return values;
}

struct Scale {
  float scale = 1;
  uint8_t zero = 0;
};

Scale scale_of(const ValueRange& range) {
  Scale result;
  const double width = range.high - range.low;
  if (width <= 0) return result;
  result.scale = static_cast<float>(width / kLargestUint8);
  const double zero = std::nearbyint(-range.low / width * kLargestUint8);
  result.zero = static_cast<uint8_t>(std::clamp(zero, 0.0, kLargestUint8));
  return result;
}

class Quantiser {
 public:
  Quantiser(const OnnxBody& body,
            const std::map<std::string, ValueRange>& ranges)
      : body_(body), ranges_(ranges) {
    for (const OnnxTensor& tensor : body.graph.tensors) {
      tensors_[tensor.name] = &tensor;
    }
    for (const OnnxLevel& level : body.levels) {
      heads_.insert({level.map, level.classes});
    }
  }

  OnnxBody run() {
    made_.graph.name = body_.graph.name;
    made_.graph.metadata = body_.graph.metadata;
    made_.graph.inputs = body_.graph.inputs;
    made_.levels = body_.levels;
    const std::string& images = body_.graph.inputs.front().name;
    quantise(images, scale_of({0, 1}));
    for (const OnnxNode& node : body_.graph.nodes) add(node);
    return std::move(made_);
  }

 private:
  void add(const OnnxNode& node) {
    OnnxNode copy = node;
    for (size_t i = 0; i < node.inputs.size(); ++i) {
      const std::string& name = node.inputs[i];
      const auto tensor = tensors_.find(name);
      if (tensor == tensors_.end()) {
        if (!name.empty() && !is_float(name)) copy.inputs[i] += "_dequantised";
      } else if (node.op != "Conv") {
        made_.graph.tensors.push_back(*tensor->second);
      }
    }
    if (node.op == "Conv") constants_of(node, copy);
    made_.graph.nodes.push_back(std::move(copy));
    const std::string& output = node.outputs.front();
    if (heads_.count(output) > 0) return;
    if (stays_float(node)) {
      floats_.insert(output);
      return;
    }
    quantise(output, keeps_numbers(node.op) ? scales_.at(node.inputs[0])
                                            : scale_of(range_of(output)));
  }

  // The means of squeeze and excitation, and values that depend only on them,
  // stay float32, because they are few and scale whole channels. Outputs of
  // Shape are not quantised either, because they are not maps.
  bool stays_float(const OnnxNode& node) const {
    return node.op == "GlobalAveragePool" || node.op == "Shape" ||
           is_float(node.inputs.front());
  }
  bool is_float(const std::string& name) const {
    return floats_.count(name) > 0;
  }

  void constants_of(const OnnxNode& node, OnnxNode& copy) {
    const OnnxTensor& offsets = *tensors_.at(node.inputs[2]);
    const std::vector<float> scales = weight(*tensors_.at(node.inputs[1]));
    copy.inputs[1] += "_dequantised";
    if (is_float(node.inputs[0])) {
      made_.graph.tensors.push_back(offsets);
    } else {
      bias(offsets, scales_.at(node.inputs[0]).scale, scales);
      copy.inputs[2] += "_dequantised";
    }
  }

  ValueRange range_of(const std::string& name) const {
    ValueRange range = ranges_.at(name);
    const auto zero = body_.zero_below.find(name);
    if (zero != body_.zero_below.end()) {
      range.low = std::max(range.low, zero->second);
    }
    return range;
  }

  // Adds the nodes that make `name`_dequantised from `name`.
  void quantise(const std::string& name, const Scale& scale) {
    scales_[name] = scale;
    const std::string step = number(name + "_scale", OnnxType::kFloat, {},
                                    bytes_of(std::vector<float>{scale.scale}));
    const std::string zero =
        number(name + "_zero", OnnxType::kUint8, {},
               std::string(1, static_cast<char>(scale.zero)));
    node("QuantizeLinear", {name, step, zero}, name + "_quantised");
    node("DequantizeLinear", {name + "_quantised", step, zero},
         name + "_dequantised");
  }

  // Quantises a weight. Returns the scale of each output channel.
  std::vector<float> weight(const OnnxTensor& tensor) {
    const std::vector<float> values = floats_of(tensor);
    const auto channels = static_cast<size_t>(tensor.dims.front());
    const size_t size = values.size() / channels;
    std::vector<float> scales(channels, 1);
    std::vector<int8_t> whole(values.size());
    for (size_t c = 0; c < channels; ++c) {
      const auto begin = values.begin() + static_cast<int64_t>(c * size);
      float largest = 0;
      for (auto value = begin; value != begin + static_cast<int64_t>(size);
           ++value) {
        largest = std::max(largest, std::abs(*value));
      }
      if (largest > 0) scales[c] = largest / static_cast<float>(kLargestInt8);
      for (size_t i = c * size; i < (c + 1) * size; ++i) {
        whole[i] = static_cast<int8_t>(
            std::clamp(std::nearbyint(static_cast<double>(values[i]) /
                                      static_cast<double>(scales[c])),
                       -kLargestInt8, kLargestInt8));
      }
    }
    dequantised(tensor, OnnxType::kInt8, bytes_of(whole), scales,
                std::string(channels, '\0'));
    return scales;
  }

  void bias(const OnnxTensor& tensor, float input_scale,
            std::vector<float> scales) {
    const std::vector<float> values = floats_of(tensor);
    std::vector<int32_t> whole(values.size());
    for (size_t c = 0; c < values.size(); ++c) {
      scales[c] *= input_scale;
      constexpr double kMost = 2147483520;  // the largest float below 2^31
      whole[c] = static_cast<int32_t>(
          std::clamp(std::nearbyint(static_cast<double>(values[c]) /
                                    static_cast<double>(scales[c])),
                     -kMost, kMost));
    }
    dequantised(tensor, OnnxType::kInt32, bytes_of(whole), scales,
                std::string(values.size() * sizeof(int32_t), '\0'));
  }

  void dequantised(const OnnxTensor& tensor, OnnxType type, std::string bytes,
                   const std::vector<float>& scales, std::string zeros) {
    const std::vector<int64_t> channels = {tensor.dims.front()};
    const std::string& name = tensor.name;
    number(name, type, tensor.dims, std::move(bytes));
    node("DequantizeLinear",
         {name,
          number(name + "_scale", OnnxType::kFloat, channels, bytes_of(scales)),
          number(name + "_zero", type, channels, std::move(zeros))},
         name + "_dequantised", {{"axis", int64_t{0}}});
  }

  std::string number(const std::string& name, OnnxType type,
                     std::vector<int64_t> dims, std::string bytes) {
    made_.graph.tensors.push_back(
        {name, type, std::move(dims), std::move(bytes)});
    return name;
  }

  void node(const std::string& op, std::vector<std::string> inputs,
            const std::string& output,
            std::vector<std::pair<std::string, OnnxNode::Attribute>>
                attributes = {}) {
    made_.graph.nodes.push_back(
        {op, std::move(inputs), {output}, std::move(attributes)});
  }

  const OnnxBody& body_;
  const std::map<std::string, ValueRange>& ranges_;
  std::map<std::string, const OnnxTensor*> tensors_;
  // heads_: names of the model's output maps, one or two a level. floats_:
  // names of the values that are kept as float32.
  std::set<std::string> heads_, floats_;
  std::map<std::string, Scale> scales_;
  OnnxBody made_;
};

}  // namespace

OnnxBody quantised(const OnnxBody& body,
                   const std::map<std::string, ValueRange>& ranges) {
  return Quantiser(body, ranges).run();
}

}  // namespace headroom::exporter
