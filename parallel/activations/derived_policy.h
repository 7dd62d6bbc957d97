// DerivedPolicy: lean. What autograd saves is kept, unless it has an
// element-wise derivation: then it is made again when backward needs it.
//
// Threads: as SavedTensorPolicy.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "parallel/activations/derivation.h"
#include "parallel/activations/saved_tensor_policy.h"

namespace headroom::activations {

class DerivedPolicy final : public SavedTensorPolicy {
 public:
  std::function<at::Tensor()> pack(const at::Tensor& tensor) override {
    const auto kept = std::make_shared<KeptTensor>(keep(tensor));
    return [kept] { return kept->take(); };
  }
};

}  // namespace headroom::activations
