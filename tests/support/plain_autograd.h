// plain_autograd: the memory of a detector that is written only with LibTorch's
// operators. Its convolution, batch norm and SiLU each keep a map for backward,
// and its pooling keeps indices. The savings of activation policies are
// measured against this memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"
#include "worker/model/layer_graph.h"

namespace headroom {

// Runs the layers of a table with the tensors of a LayerGraph, which it
// borrows.
class PlainNetwork {
 public:
  PlainNetwork(const layers::ModelTable& table, model::LayerGraph& model);

  // [n, 3, H, W] -> per level [n, outputs, H / s, W / s].
  std::vector<at::Tensor> forward(const at::Tensor& images) const;

 private:
  at::Tensor run(const std::string& module, const std::string& prefix,
                 size_t layer, const std::vector<at::Tensor>& inputs) const;
  at::Tensor conv(const std::string& prefix, const at::Tensor& x,
                  int64_t stride = 1, int64_t padding = -1) const;
  at::Tensor c3(const std::string& prefix, const at::Tensor& x) const;
  at::Tensor sppf(const std::string& prefix, const at::Tensor& x) const;
  std::vector<at::Tensor> detect(const std::string& prefix,
                                 const std::vector<at::Tensor>& inputs) const;

  const layers::ModelTable& table_;
  const std::vector<std::vector<int>>& edges_;
  std::map<std::string, at::Tensor> tensors_;
};

// The bytes, counted by the counting allocator, that are live after a training
// forward pass in addition to the weights. They include the heads, but not the
// loss.
int64_t plain_autograd_bytes(const layers::ModelTable& table,
                             int64_t num_classes, int64_t images,
                             int64_t height, int64_t width,
                             at::ScalarType type);

}  // namespace headroom
