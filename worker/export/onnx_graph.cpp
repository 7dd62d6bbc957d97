#include "worker/export/onnx_graph.h"

#include <cstring>

namespace headroom::exporter {
namespace {

template <class T>
std::string bytes_of(const std::vector<T>& values) {
  std::string bytes(values.size() * sizeof(T), '\0');
  if (!values.empty()) std::memcpy(bytes.data(), values.data(), bytes.size());
  return bytes;
}

std::string constant_name(const OnnxGraph& graph) {
  return "constant_" + std::to_string(graph.tensors.size());
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
  const std::string stem = op + "_" + std::to_string(nodes.size());
  for (size_t i = 0; i < num_outputs; ++i) {
    node.outputs.push_back(num_outputs == 1 ? stem
                                            : stem + "_" + std::to_string(i));
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

}  // namespace headroom::exporter
