// SavedTensorPolicy: decides how tensors that autograd saves are kept.
//
// Autograd calls the policy of the thread that records the graph. The node then
// keeps, instead of the tensor, an action that returns the tensor. Every memory
// policy (recompute, offload, ...) is a SavedTensorPolicy; operators and layers
// do not depend on policies.
//
// LibTorch gets such hooks from its autograd engine. The engine is replaced by
// one that asks the thread's policy (install_saved_tensor_policies).
//
// A policy is used by the thread whose guard is active. Actions run in the
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

  // Called with gradient mode off; must not change the tensor. The returned
  // action is called once, when backward needs the tensor.
  virtual std::function<at::Tensor()> pack(const at::Tensor& tensor) = 0;
};

// In its scope, graphs recorded by this thread save their tensors through
// `policy`; with nullptr, as LibTorch does by default. Guards nest.
class SavedTensorPolicyGuard {
 public:
  explicit SavedTensorPolicyGuard(SavedTensorPolicy* policy);
  ~SavedTensorPolicyGuard();
  SavedTensorPolicyGuard(const SavedTensorPolicyGuard&) = delete;
  SavedTensorPolicyGuard& operator=(const SavedTensorPolicyGuard&) = delete;

 private:
  SavedTensorPolicy* previous_;
};

// Call it before the process first uses autograd. May be called again.
void install_saved_tensor_policies();

// The policy `lean`: a saved tensor is kept, unless it can be computed from
// another kept tensor by element-wise operations; then it is computed again
// when backward needs it.
class DerivedPolicy final : public SavedTensorPolicy {
 public:
  std::function<at::Tensor()> pack(const at::Tensor& tensor) override {
    const auto kept = std::make_shared<KeptTensor>(keep(tensor));
    return [kept] { return kept->take(); };
  }
};

}  // namespace headroom::activations
