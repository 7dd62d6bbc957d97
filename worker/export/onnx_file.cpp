// OnnxGraph to the bytes of a file: the only file here that knows protobuf.
#include "parallel/base/check.h"
#include "proto/onnx.pb.h"
#include "proto/version.h"
#include "worker/export/onnx_graph.h"

namespace headroom::exporter {
namespace {

constexpr int64_t kIrVersion = 8;  // the one that came with opset 17
constexpr int64_t kOpset = 17;
// protobuf's own limit of a message.
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
