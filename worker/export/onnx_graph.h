// OnnxGraph: an ONNX network (opset 17) as plain values: nodes by name, their
// tensors, inputs and outputs.
//
// Standard library only: the code that builds it uses LibTorch, the code that
// serialises it uses protobuf, and no file may include both.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace headroom::exporter {

enum class OnnxType : int32_t {
  kFloat = 1,
  kUint8 = 2,
  kInt8 = 3,
  kInt32 = 6,
  kInt64 = 7,
  kHalf = 10
};

struct OnnxTensor {
  std::string name;
  OnnxType type = OnnxType::kFloat;
  std::vector<int64_t> dims;
  std::string bytes;  // row-major, little-endian
};

struct OnnxNode {
  using Attribute =
      std::variant<int64_t, float, std::string, std::vector<int64_t>>;
  std::string op;
  std::vector<std::string> inputs, outputs;
  std::vector<std::pair<std::string, Attribute>> attributes;
};

struct OnnxValue {
  std::string name;
  OnnxType type = OnnxType::kFloat;
  std::vector<std::variant<int64_t, std::string>> dims;  // a name: any size
};

struct OnnxGraph {
  std::string name;
  std::vector<OnnxNode> nodes;
  std::vector<OnnxTensor> tensors;
  std::vector<OnnxValue> inputs, outputs;
  std::map<std::string, std::string> metadata;

  // Adds a node with one output, which is named after the operator and its
  // index. Returns the name of the output.
  std::string add(
      const std::string& op, std::vector<std::string> node_inputs,
      std::vector<std::pair<std::string, OnnxNode::Attribute>> attributes = {});
  // As add(), with `num_outputs` outputs.
  std::vector<std::string> add_many(
      const std::string& op, std::vector<std::string> node_inputs,
      size_t num_outputs,
      std::vector<std::pair<std::string, OnnxNode::Attribute>> attributes = {});
  // Adds a tensor of these values; returns its name. Empty dims mean a scalar.
  std::string floats(const std::vector<float>& values,
                     const std::vector<int64_t>& dims);
  std::string integers(const std::vector<int64_t>& values);
  std::string integer(int64_t value);  // a scalar
};

// Returns the bytes of an .onnx file.
std::string serialise_onnx(const OnnxGraph& graph);

}  // namespace headroom::exporter
