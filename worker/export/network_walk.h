// network_walk: visits a model's layers and the steps of each layer's program
// in order, and writes their operators with an emitter.
//
// The walk knows every operator in both languages, ONNX and TorchScript: it
// folds batch norms into their convolutions, and splits composed operations
// such as a chain of poolings. An emitter only adds an operator to its own
// network. A value is a text: a name or an expression in the emitter's
// language.
//
// Errors: Error (exit 2) that names the layer if a module has no counterpart.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "configs/layers/model_table.h"
#include "worker/export/onnx_graph.h"
#include "worker/model/layer_graph.h"

namespace headroom::exporter {

// A block's convolution and batch norm as one convolution for inference:
//
//   weight * s, bias - mean * s   with s = scale / sqrt(variance + epsilon)
struct FoldedBlock {
  at::Tensor weight, bias;  // float64
};

// `prefix` is the prefix of the block's tensors in `state`, "model.2.cv1.".
FoldedBlock folded_block(const std::map<std::string, at::Tensor>& state,
                         const std::string& prefix);

// One operator, with one output.
struct ExportedOperator {
  // A value. Numbers are inputs of ONNX's operator only; TorchScript's
  // expression contains them.
  using Input =
      std::variant<std::string, std::vector<int64_t>, std::vector<float>>;

  std::string onnx;
  std::vector<Input> inputs;
  std::vector<std::pair<std::string, OnnxNode::Attribute>> attributes = {};
  // TorchScript's expression; empty if a later operator's expression includes
  // this operator.
  std::string torch = {};
  // In 8 bits, smaller first inputs need no precision, because the output is 0
  // for them.
  std::optional<double> zero_below = {};
};

class NetworkEmitter {
 public:
  using Value = std::string;

  virtual ~NetworkEmitter() = default;

  virtual Value add(const ExportedOperator& added) = 0;
  // Stores a weight or bias of the state: "model.2.cv1.conv.weight".
  virtual Value tensor(const std::string& name, const at::Tensor& values) = 0;
  // Called with the maps of the head's last convolutions, in the order in which
  // LayerGraph::forward returns the heads.
  virtual void head(size_t index, const Value& map) = 0;
};

// `images` is the value that the first layer reads. `model` was built from
// `table`.
void walk_network(const layers::ModelTable& table, model::LayerGraph& model,
                  const NetworkEmitter::Value& images, NetworkEmitter& emitter);

}  // namespace headroom::exporter
