// network_walk: visits a model's layers and the steps of each layer's program
// in order, and calls an emitter, which writes them in its own language.
//
// The walk provides the tensors of an operation (with batch norms folded into
// their convolutions) and splits composed operations such as a chain of
// poolings. The emitter only writes single operations. A value is a text: a
// name or an expression in the emitter's language.
//
// Errors: Error (exit 2) that names the layer if a module has no counterpart.
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

// A block's convolution and batch norm as one convolution for inference:
//
//   weight * s, bias - mean * s   with s = scale / sqrt(variance + epsilon)
struct FoldedBlock {
  at::Tensor weight, bias;  // float64
};

// `prefix` is the prefix of the block's tensors in `state`, "model.2.cv1.".
FoldedBlock folded_block(const std::map<std::string, at::Tensor>& state,
                         const std::string& prefix);

class NetworkEmitter {
 public:
  using Value = std::string;

  virtual ~NetworkEmitter() = default;

  // `name` is the prefix of weight and bias in the state, "model.2.cv1.conv.".
  // A transposed convolution (shape.is_transposed) has no padding.
  virtual Value convolution(const Value& x, const std::string& name,
                            const at::Tensor& weight, const at::Tensor& bias,
                            const layers::LayerProgram::Block& shape) = 0;
  virtual Value activation(const Value& x,
                           const layers::ActivationFunction& function) = 0;
  virtual Value max_pool(const Value& x, int64_t window) = 0;  // stride 1
  virtual Value add(const Value& a, const Value& b) = 0;
  // mean() averages each channel over its cells. scale() multiplies the
  // channels of `x` by factors that come from hard_sigmoid().
  virtual Value mean(const Value& x) = 0;
  virtual Value hard_sigmoid(const Value& x) = 0;
  virtual Value scale(const Value& x, const Value& factors) = 0;
  virtual Value concat(const std::vector<Value>& maps) = 0;  // along channels
  virtual Value upsample(const Value& x) = 0;
  // Takes every second row and column of x, beginning at (row, column). Only
  // concat() reads the result.
  virtual Value every_second(const Value& x, int64_t row, int64_t column) = 0;
  virtual Value slice(const Value& x, int64_t begin, int64_t end) = 0;
  virtual Value shuffle(const Value& x, int64_t groups, int64_t channels) = 0;
  // Called with the map of a level's last convolution, right after
  // convolution().
  virtual void head(size_t level, const Value& map) = 0;
};

// `images` is the value that the first layer reads. `model` was built from
// `table`.
void walk_network(const layers::ModelTable& table, model::LayerGraph& model,
                  const NetworkEmitter::Value& images, NetworkEmitter& emitter);

}  // namespace headroom::exporter
