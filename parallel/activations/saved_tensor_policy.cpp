#include "parallel/activations/saved_tensor_policy.h"

#include <torch/csrc/autograd/engine.h>
#include <torch/csrc/autograd/saved_variable_hooks.h>

#include <utility>

namespace headroom::activations {
namespace {

thread_local SavedTensorPolicy* active = nullptr;

class Hooks final : public torch::autograd::SavedVariableHooks {
 public:
  explicit Hooks(SavedTensorPolicy& policy) : policy_(policy) {}
  void call_pack_hook(const at::Tensor& tensor) override {
    unpack_ = policy_.pack(tensor);
  }
  at::Tensor call_unpack_hook() override { return unpack_(); }

 private:
  SavedTensorPolicy& policy_;  // not used after call_pack_hook()
  std::function<at::Tensor()> unpack_;
};

class PolicyEngine final : public torch::autograd::Engine {
 public:
  // Never destroyed, because its threads and queues outlive static storage.
  static Engine& instance() {
    static auto* const engine = new PolicyEngine;
    return *engine;
  }
  std::unique_ptr<torch::autograd::SavedVariableHooks>
  get_default_saved_variable_hooks() override {
    return active != nullptr ? std::make_unique<Hooks>(*active) : nullptr;
  }
};

}  // namespace

SavedTensorPolicyGuard::SavedTensorPolicyGuard(SavedTensorPolicy* policy)
    : previous_(std::exchange(active, policy)) {}

SavedTensorPolicyGuard::~SavedTensorPolicyGuard() { active = previous_; }

void install_saved_tensor_policies() {
  torch::autograd::set_default_engine_stub(&PolicyEngine::instance);
}

}  // namespace headroom::activations
