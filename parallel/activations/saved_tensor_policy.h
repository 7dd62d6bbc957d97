// SavedTensorPolicy: what becomes of a tensor that autograd saves for backward.
//
// Autograd asks the policy of the thread that records the graph: instead of
// keeping the tensor, a node keeps the action that brings it back. Every memory
// policy (recompute, offload, ...) is one of these, and no operator or layer
// knows of it.
//
// LibTorch asks its autograd engine for such hooks; the engine is replaced by
// one that asks the thread's policy (install_saved_tensor_policies).
//
// A policy is used by the thread whose guard is active; actions run in the
// thread that runs backward.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <memory>

#include "parallel/activations/derivation.h"

namespace headroom::activations {

class SavedTensorPolicy {
 public:
  virtual ~SavedTensorPolicy() = default;

  // Called without gradient mode; must not change the tensor. The action is
  // called once, when backward needs the tensor.
  virtual std::function<at::Tensor()> pack(const at::Tensor& tensor) = 0;
};

// While it lives, this thread's graphs save their tensors through `policy`;
// with null, as LibTorch does. Guards nest.
class SavedTensorPolicyGuard {
 public:
  explicit SavedTensorPolicyGuard(SavedTensorPolicy* policy);
  ~SavedTensorPolicyGuard();
  SavedTensorPolicyGuard(const SavedTensorPolicyGuard&) = delete;
  SavedTensorPolicyGuard& operator=(const SavedTensorPolicyGuard&) = delete;

 private:
  SavedTensorPolicy* previous_;
};

// Call it before the process first uses autograd; calling again is fine.
void install_saved_tensor_policies();

// The policy lean: what autograd saves is kept, unless it has an element-wise
// derivation: then it is made again when backward needs it.
class DerivedPolicy final : public SavedTensorPolicy {
 public:
  std::function<at::Tensor()> pack(const at::Tensor& tensor) override {
    const auto kept = std::make_shared<KeptTensor>(keep(tensor));
    return [kept] { return kept->take(); };
  }
};

}  // namespace headroom::activations
