// network_walk: a model's layers, and the steps of each layer's program, in
// order, told to an emitter that writes them down in its own language.
//
// The walk knows which tensors an operation has (batch norms folded into their
// convolutions), and what is composed of others: a chain of poolings, folding.
// An emitter knows how a single operation is written. Values are texts: names,
// or whatever stands for a value in that language.
//
// Errors: Error (exit 2) naming the layer for a module
// that has no counterpart here.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "configs/layers/layer_program.h"
#include "configs/layers/model_table.h"
#include "worker/model/layer_graph.h"

namespace headroom::exporter {

// The convolution and batch norm of a block as one convolution, for
// the network as it is used:
//
//   weight * s, bias - mean * s   with s = scale / sqrt(variance + epsilon)
struct FoldedBlock {
  at::Tensor weight, bias;  // float64
};

// `prefix`: of the block's tensors in `state`, "model.2.cv1.".
FoldedBlock folded_block(const std::map<std::string, at::Tensor>& state,
                         const std::string& prefix);

class NetworkEmitter {
 public:
  using Value = std::string;

  virtual ~NetworkEmitter() = default;

  // `name`: of the weight and bias in the state, "model.2.cv1.conv."; `shape`
  // is_transposed: without padding.
  virtual Value convolution(const Value& x, const std::string& name,
                            const at::Tensor& weight, const at::Tensor& bias,
                            const layers::LayerProgram::Block& shape) = 0;
  virtual Value activation(const Value& x,
                           const layers::ActivationFunction& function) = 0;
  virtual Value max_pool(const Value& x, int64_t window) = 0;  // stride 1
  virtual Value add(const Value& a, const Value& b) = 0;
  // mean() averages each channel over its cells; scale() multiplies by such
  // values, which hard_sigmoid() makes.
  virtual Value mean(const Value& x) = 0;
  virtual Value hard_sigmoid(const Value& x) = 0;
  virtual Value scale(const Value& x, const Value& factors) = 0;
  virtual Value concat(const std::vector<Value>& maps) = 0;  // along channels
  virtual Value upsample(const Value& x) = 0;
  // Every second row and column, from these on; read once, by concat.
  virtual Value every_second(const Value& x, int64_t row, int64_t column) = 0;
  virtual Value slice(const Value& x, int64_t begin, int64_t end) = 0;
  virtual Value shuffle(const Value& x, int64_t groups, int64_t channels) = 0;
  // The map of a level's last convolution, right after it.
  virtual void head(size_t level, const Value& map) = 0;
};

// `images`: the value that the first layer reads. `model` was built from
// `table`.
void walk_network(const layers::ModelTable& table, model::LayerGraph& model,
                  const NetworkEmitter::Value& images, NetworkEmitter& emitter);

}  // namespace headroom::exporter
