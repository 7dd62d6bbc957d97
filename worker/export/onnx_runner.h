// OnnxRunner: a network's ONNX graph, run with LibTorch's operators: to see
// what its values are (calibration), and what rounding them to 8 bits does to
// its heads (simulated quantisation).
//
// Knows the operators of a network's body (onnx_network.h) and of
// quantisation; numbers of 8 bits are kept as whole numbers in the runner's
// type, so that nothing is rounded but by QuantizeLinear, halves to even.
// A value is released after its last reader. Errors: Error for another
// operator.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "worker/export/onnx_graph.h"
#include "worker/export/onnx_network.h"

namespace headroom::exporter {

class OnnxRunner {
 public:
  // Values are of `type`, float32 or float64.
  OnnxRunner(const OnnxGraph& graph, at::ScalarType type);

  using Observer =
      std::function<void(const std::string& name, const at::Tensor& value)>;
  // images: [N, C, H, W], 0..1, sides in multiples of the largest stride, of
  // any size. Returns the values `wanted`; `observer` sees every node's output.
  std::vector<at::Tensor> run(const at::Tensor& images,
                              const std::vector<std::string>& wanted,
                              const Observer& observer = nullptr);

 private:
  using Values = std::map<std::string, at::Tensor>;
  at::Tensor run_node(const OnnxNode& node, const Values& values) const;
  at::Tensor input(const OnnxNode& node, size_t place,
                   const Values& values) const;

  const OnnxGraph& graph_;
  const at::ScalarType type_;
  Values constants_;  // the graph's tensors, and what is made of them alone
};

// Makes heads of images, as LayerGraph::forward gives them, by running `body`
// in float32; it is copied.
std::function<std::vector<at::Tensor>(const at::Tensor& images)>
simulated_heads(const OnnxBody& body);

}  // namespace headroom::exporter
