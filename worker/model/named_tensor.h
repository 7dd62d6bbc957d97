// NamedTensor: one entry of the model's state under YOLOv5's name.
//
// The model owns the tensor; `tensor` points into it, so that a flat buffer
// can replace it by a view of a flat buffer.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

namespace headroom::model {

enum class TensorRole {
  kConvolutionWeight,  // decayed
  kBias,               // convolution and batch-norm biases
  kNormWeight,         // batch-norm scales
  kRunningStatistic,   // running_mean, running_var
  kConstant            // num_batches_tracked (int64), anchors
};

struct NamedTensor {
  std::string name;
  TensorRole role = TensorRole::kConstant;
  at::Tensor* tensor = nullptr;
  // Of a convolution's weight: where its copy of 16 bits goes, for maps of that
  // type; null: none is used. Whoever changes the weight renews the copy.
  at::Tensor* compute = nullptr;
  int64_t layer = 0;  // of the model table

  bool is_parameter() const {
    return role == TensorRole::kConvolutionWeight ||
           role == TensorRole::kBias || role == TensorRole::kNormWeight;
  }
};

using NamedTensors = std::vector<NamedTensor>;

}  // namespace headroom::model
