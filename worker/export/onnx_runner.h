// OnnxRunner: executes a network's ONNX graph with LibTorch operators, to
// observe its values (calibration) and the effect of rounding them to 8 bits on
// its heads (simulated quantisation).
//
// Supports only the operators of a network's body (onnx_network.h) and of
// quantisation. 8-bit numbers are stored as whole numbers in the runner's type,
// so only QuantizeLinear rounds (halves to even). A value is released after its
// last use. Errors: Error for an unsupported operator.
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
  // `type` is the type of all values: float32 or float64.
  OnnxRunner(const OnnxGraph& graph, at::ScalarType type);

  using Observer =
      std::function<void(const std::string& name, const at::Tensor& value)>;
  // `images` is [N, C, H, W], 0..1, with sides that the largest stride divides.
  // Returns the values `wanted`; calls `observer` with every node's output.
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
  // The graph's tensors, and values computed only from these.
  Values constants_;
};

// Returns a function that computes the heads of images, as LayerGraph::forward
// does, by executing a copy of `body` in float32.
std::function<std::vector<at::Tensor>(const at::Tensor& images)>
simulated_heads(const OnnxBody& body);

}  // namespace headroom::exporter
