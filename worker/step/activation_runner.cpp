#include "worker/step/activation_runner.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <string>
#include <utility>

#include "parallel/activations/recomputation.h"
#include "parallel/base/check.h"
#include "worker/model/replay_log.h"

namespace headroom::step {
namespace {

using LayerCall = std::function<std::vector<at::Tensor>(
    const std::vector<at::Tensor>& inputs, const model::StepContext& inside)>;

std::vector<at::Tensor> recompute_with_tape(
    LayerCall call, const std::vector<at::Tensor>& inputs,
    const model::StepContext& context,
    const activations::RecomputeOptions& options);

// Maps get derivations, for whoever saves them; pieces are simply run.
class NotedMaps : public model::DerivedMaps {
 public:
  void can_be_made(const at::Tensor& map,
                   const std::vector<at::Tensor>& sources, Make make) override {
    activations::set_derivation(map, sources, std::move(make));
  }
  at::Tensor run_again(const at::Tensor& input,
                       const model::StepContext& context,
                       Piece piece) override {
    return piece(input, context);
  }
};

// Pieces are recomputed too.
class LeanMaps final : public NotedMaps {
 public:
  at::Tensor run_again(const at::Tensor& input,
                       const model::StepContext& context,
                       Piece piece) override {
    activations::RecomputeOptions options;
    options.output = activations::DerivationCost::kElementwise;
    return recompute_with_tape(
               [piece = std::move(piece)](const std::vector<at::Tensor>& inputs,
                                          const model::StepContext& inside) {
                 return std::vector<at::Tensor>{piece(inputs.front(), inside)};
               },
               {input}, context, options)
        .front();
  }
};

// Without state.
NotedMaps noted_maps;
LeanMaps lean_maps;

std::vector<at::Tensor> recompute_with_tape(
    LayerCall call, const std::vector<at::Tensor>& inputs,
    const model::StepContext& context,
    const activations::RecomputeOptions& options) {
  const auto tape = std::make_shared<model::ReplayLog>();
  return activations::recompute(
      [call = std::move(call), context, tape](
          const std::vector<at::Tensor>& given, activations::Pass pass) {
        model::StepContext inside = context;
        inside.runner = nullptr;
        inside.tape = tape.get();
        // In the first pass nothing is saved: a derivation would keep what it
        // is made from.
        inside.derived = nullptr;
        if (pass == activations::Pass::kAgain) {
          tape->start_replay();
          inside.batch_norm_sums = at::Tensor();
          inside.derived = &noted_maps;
        }
        return call(given, inside);
      },
      inputs, options);
}

}  // namespace

ActivationRunner::ActivationRunner(Options options)
    : options_(std::move(options)),
      maps_are_derived_(std::ranges::any_of(
          options_.policies,
          [](plan::ActivationPolicy policy) {
            return policy == plan::ActivationPolicy::kLean ||
                   policy == plan::ActivationPolicy::kRecompute;
          })),
      offload_(options_.host_memory_limit) {}

ActivationRunner::~ActivationRunner() = default;

std::vector<at::Tensor> ActivationRunner::run(
    int64_t index, model::Layer& layer, const std::vector<at::Tensor>& inputs,
    const model::StepContext& context) {
  if (!c10::GradMode::is_enabled()) return layer.forward(inputs, context);
  switch (options_.policies.at(static_cast<size_t>(index))) {
    case plan::ActivationPolicy::kKeep: {
      // The layers behind may derive what this one keeps.
      model::StepContext inside = context;
      if (maps_are_derived_) inside.derived = &noted_maps;
      return layer.forward(inputs, inside);
    }
    case plan::ActivationPolicy::kLean:
      return run_lean(layer, inputs, context);
    case plan::ActivationPolicy::kRecompute:
      // Such a layer saves no more than its inputs.
      if (layer.inside() == layers::LayerInside::kNothing)
        return run_lean(layer, inputs, context);
      return run_recomputed(layer, inputs, context);
    case plan::ActivationPolicy::kOffload: {
      const activations::SavedTensorPolicyGuard guard(&offload_);
      return layer.forward(inputs, context);
    }
  }
  HEADROOM_CHECK(false, "layer " + std::to_string(index) + " has no policy");
}

std::vector<at::Tensor> ActivationRunner::run_lean(
    model::Layer& layer, const std::vector<at::Tensor>& inputs,
    const model::StepContext& context) {
  const activations::SavedTensorPolicyGuard guard(&lean_);
  model::StepContext inside = context;
  inside.derived = &lean_maps;
  return layer.forward(inputs, inside);
}

std::vector<at::Tensor> ActivationRunner::run_recomputed(
    model::Layer& layer, const std::vector<at::Tensor>& inputs,
    const model::StepContext& context) {
  activations::RecomputeOptions options;
  if (options_.layers_join &&
      layer.inside() == layers::LayerInside::kOneConvolution) {
    options.inputs = activations::DerivationCost::kConvolution;
    options.output = activations::DerivationCost::kConvolution;
  }
  return recompute_with_tape(
      [&layer](const std::vector<at::Tensor>& given,
               const model::StepContext& inside) {
        return layer.forward(given, inside);
      },
      inputs, context, options);
}

}  // namespace headroom::step
