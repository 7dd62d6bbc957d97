#include "worker/export/onnx_graph.h"

#include <cstring>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "proto/onnx.pb.h"
#include "proto/version.h"

namespace headroom::exporter {
namespace {

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::string constant_name(const OnnxGraph& graph) {
  return cat("constant_", graph.tensors.size());
}

constexpr int64_t kIrVersion = 8;  // introduced with opset 17
constexpr int64_t kOpset = 17;
// protobuf's limit for a message.
constexpr size_t kLargestFile = 0x7fffffff;

void set_attribute(onnx::AttributeProto& out,
                   const OnnxNode::Attribute& attribute) {
  if (const auto* whole = std::get_if<int64_t>(&attribute)) {
    out.set_type(onnx::AttributeProto::INT);
    out.set_i(*whole);
  } else if (const auto* real = std::get_if<float>(&attribute)) {
    out.set_type(onnx::AttributeProto::FLOAT);
    out.set_f(*real);
  } else if (const auto* text = std::get_if<std::string>(&attribute)) {
    out.set_type(onnx::AttributeProto::STRING);
    out.set_s(*text);
  } else {
    out.set_type(onnx::AttributeProto::INTS);
    for (const int64_t value : std::get<std::vector<int64_t>>(attribute)) {
      out.add_ints(value);
    }
  }
}

void set_value(onnx::ValueInfoProto& out, const OnnxValue& value) {
  out.set_name(value.name);
  auto& type = *out.mutable_type()->mutable_tensor_type();
  type.set_elem_type(static_cast<int32_t>(value.type));
  for (const auto& dim : value.dims) {
    auto& place = *type.mutable_shape()->add_dim();
    if (const auto* size = std::get_if<int64_t>(&dim)) {
      place.set_dim_value(*size);
    } else {
      place.set_dim_param(std::get<std::string>(dim));
    }
  }
}

}  // namespace

std::vector<std::string> OnnxGraph::add_many(
    const std::string& op, std::vector<std::string> node_inputs,
    size_t num_outputs,
    std::vector<std::pair<std::string, OnnxNode::Attribute>> attributes) {
  OnnxNode node;
  node.op = op;
  node.inputs = std::move(node_inputs);
  node.attributes = std::move(attributes);
  const std::string stem = cat(op, "_", nodes.size());
  for (size_t i = 0; i < num_outputs; ++i) {
    node.outputs.push_back(num_outputs == 1 ? stem : cat(stem, "_", i));
  }
  nodes.push_back(node);
  return node.outputs;
}

std::string OnnxGraph::add(
    const std::string& op, std::vector<std::string> node_inputs,
    std::vector<std::pair<std::string, OnnxNode::Attribute>> attributes) {
  return add_many(op, std::move(node_inputs), 1, std::move(attributes)).front();
}

std::string OnnxGraph::floats(const std::vector<float>& values,
                              const std::vector<int64_t>& dims) {
  tensors.push_back(
      {constant_name(*this), OnnxType::kFloat, dims, bytes_of(values)});
  return tensors.back().name;
}

std::string OnnxGraph::integers(const std::vector<int64_t>& values) {
  tensors.push_back({constant_name(*this),
                     OnnxType::kInt64,
                     {static_cast<int64_t>(values.size())},
                     bytes_of(values)});
  return tensors.back().name;
}

std::string OnnxGraph::integer(int64_t value) {
  tensors.push_back({constant_name(*this),
                     OnnxType::kInt64,
                     {},
                     bytes_of(std::vector<int64_t>{value})});
  return tensors.back().name;
}

std::string serialise_onnx(const OnnxGraph& graph) {
  onnx::ModelProto model;
  model.set_ir_version(kIrVersion);
  model.set_producer_name("headroom");
  model.set_producer_version(wire::kVersion);
  model.add_opset_import()->set_version(kOpset);
  for (const auto& [key, value] : graph.metadata) {
    auto& entry = *model.add_metadata_props();
    entry.set_key(key);
    entry.set_value(value);
  }
  auto& out = *model.mutable_graph();
  out.set_name(graph.name);
  for (const OnnxNode& node : graph.nodes) {
    auto& made = *out.add_node();
    made.set_op_type(node.op);
    made.set_name(node.outputs.front());
    for (const std::string& name : node.inputs) made.add_input(name);
    for (const std::string& name : node.outputs) made.add_output(name);
    for (const auto& [name, attribute] : node.attributes) {
      auto& place = *made.add_attribute();
      place.set_name(name);
      set_attribute(place, attribute);
    }
  }
  for (const OnnxTensor& tensor : graph.tensors) {
    auto& made = *out.add_initializer();
    made.set_name(tensor.name);
    made.set_data_type(static_cast<int32_t>(tensor.type));
    for (const int64_t dim : tensor.dims) made.add_dims(dim);
    made.set_raw_data(tensor.bytes);
  }
  for (const OnnxValue& value : graph.inputs)
    set_value(*out.add_input(), value);
  for (const OnnxValue& value : graph.outputs) {
    set_value(*out.add_output(), value);
  }
  if (model.ByteSizeLong() > kLargestFile) {
    throw Error("export", "the network is larger than an ONNX file may be",
                "export a smaller model, or --half");
  }
  return model.SerializeAsString();
}

}  // namespace headroom::exporter
