// ModelState: the tensors of a model in state-dict order.
//
// Modules own their tensors and register them here under YOLOv5's names, with
// initial values. The order of registration is the order of the state.
//
// Registered tensors must keep their addresses until their layer is dropped, so
// modules are neither copied nor moved.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <vector>

#include "worker/model/layer.h"
#include "worker/model/layer_graph.h"

namespace headroom::model {

class ModelState {
 public:
  ModelState(at::ScalarType scalar_type, uint64_t seed);

  // Entries registered from here on belong to this layer of the table.
  void begin_layer(int64_t layer) { layer_ = layer; }

  // Registers a weight [c_out, c_in, kernel, kernel] in channels-last memory
  // with Kaiming-uniform values. `compute`: see NamedTensor.
  void add_convolution_weight(const std::string& name, at::Tensor* tensor,
                              at::Tensor* compute, int64_t c_out, int64_t c_in,
                              int64_t kernel);
  // Registers `values`, converted to the model's type if floating-point.
  void add(const std::string& name, TensorRole role, at::Tensor* tensor,
           const at::Tensor& values);
  // Registers running statistics for the step's commit. Writes the offset of
  // their slice of StepContext::batch_norm_sums, in elements, to `sums_offset`:
  // in this call, and again whenever layers are dropped.
  void add_batch_norm(const std::string& name, int64_t channels,
                      at::Tensor* running_mean, at::Tensor* running_var,
                      int64_t* sums_offset);

  // Removes the layers outside [begin, end), which may then be destroyed, and
  // closes the gaps in batch_norm_sums.
  void keep_layers(int64_t begin, int64_t end);

  at::ScalarType scalar_type() const { return scalar_type_; }
  uint64_t seed() const { return seed_; }
  const NamedTensors& tensors() const { return tensors_; }
  const std::vector<LayerGraph::BatchNorm>& batch_norms() const {
    return batch_norms_;
  }
  int64_t batch_norm_sums_size() const { return batch_norm_sums_size_; }

 private:
  at::ScalarType scalar_type_;
  uint64_t seed_;
  int64_t layer_ = 0;
  NamedTensors tensors_;
  std::vector<LayerGraph::BatchNorm> batch_norms_;
  // Pointers to the modules' offsets, one per batch norm.
  std::vector<int64_t*> sums_offsets_;
  int64_t batch_norm_sums_size_ = 0;
};

// Initial values of a model.
//
// Each tensor's values come from a counter-based generator (Philox 4x32-10)
// keyed by the run's seed and the tensor's name. So they do not depend on the
// order of construction, on which rank builds which layers, or on the
// precision: the numbers are float32 values in every precision.

// The key of a tensor's values.
struct InitialisationKey {
  uint64_t seed = 0;
  std::string name;  // "model.0.conv.weight"
};

// Returns uniform values in [-bound, bound), in row-major order.
at::Tensor uniform_values(const InitialisationKey& key, at::IntArrayRef sizes,
                          double bound, at::ScalarType scalar_type);

// Half-width of Kaiming-uniform values with a = sqrt(5): sqrt(6 / ((1 + a^2) *
// fan_in)). Used for weights and biases. He et al., arXiv:1502.01852.
double kaiming_bound(int64_t fan_in);

}  // namespace headroom::model
