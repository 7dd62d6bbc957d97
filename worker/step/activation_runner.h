// ActivationRunner: what a layer of the model keeps for its backward, by the
// policy of the layer.
//
//   keep       what autograd saves
//   lean       convolution outputs; other maps are derived from them again
//   recompute  the layer's inputs, unless these can be derived; a layer that is
//              one convolution behind another such layer keeps nothing: both
//              are one piece
//   offload    nothing: what autograd saves goes to a file
//
// All are bit-identical to keep. Nothing is communicated or counted again: what
// a layer received from other ranks is kept (lean) or replayed from its log
// (recompute).
//
// Ownership: autograd graphs refer to it, so it must outlive the step.
// Threads: the thread that runs the step. Errors: as OffloadFile.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "parallel/activations/offload_policy.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/plan/plan.h"
#include "worker/model/derived_maps.h"
#include "worker/model/layer.h"

namespace headroom::step {

class ActivationRunner final : public model::LayerExecutor {
 public:
  struct Options {
    // One per layer of the model.
    std::vector<plan::ActivationPolicy> policies;
    // Whether a layer may run again in the backward of the next one. It may not
    // where its parameters are whole in its own backward only (ZeRO 3).
    bool layers_join = true;
    // The most bytes to offload; 0: as many as the disk takes.
    int64_t host_memory_limit = 0;
  };
  explicit ActivationRunner(Options options);
  ~ActivationRunner() override;

  std::vector<at::Tensor> run(int64_t index, model::Layer& layer,
                              const std::vector<at::Tensor>& inputs,
                              const model::StepContext& context) override;

  const activations::OffloadPolicy& offload() const { return offload_; }

 private:
  std::vector<at::Tensor> run_lean(model::Layer& layer,
                                   const std::vector<at::Tensor>& inputs,
                                   const model::StepContext& context);
  std::vector<at::Tensor> run_recomputed(model::Layer& layer,
                                         const std::vector<at::Tensor>& inputs,
                                         const model::StepContext& context);

  const Options options_;
  bool maps_are_derived_ = false;  // by at least one layer
  activations::DerivedPolicy lean_;
  activations::OffloadPolicy offload_;
};

}  // namespace headroom::step
