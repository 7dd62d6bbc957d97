#include "worker/step/apply_plan.h"

#include <c10/core/GradMode.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "parallel/activations/recomputation.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/collectives/gather.h"
#include "parallel/plan/plan_parts.h"
#include "worker/model/replay_log.h"

namespace headroom::step {
namespace {

using LayerCall = std::function<std::vector<at::Tensor>(
    const std::vector<at::Tensor>& inputs, const model::StepContext& inside)>;

std::vector<at::Tensor> recompute_and_replay(
    LayerCall call, const std::vector<at::Tensor>& inputs,
    const model::StepContext& context,
    const activations::RecomputeOptions& options);

// Lets a layer save how a map is computed again instead of the map itself, and
// runs layers that are joined.
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

// Recomputes pieces in the backward.
class LeanMaps final : public NotedMaps {
 public:
  at::Tensor run_again(const at::Tensor& input,
                       const model::StepContext& context,
                       Piece piece) override {
    activations::RecomputeOptions options;
    options.output = activations::DerivationCost::kElementwise;
    return recompute_and_replay(
               [piece = std::move(piece)](const std::vector<at::Tensor>& inputs,
                                          const model::StepContext& inside) {
                 return std::vector<at::Tensor>{piece(inputs.front(), inside)};
               },
               {input}, context, options)
        .front();
  }
};

// Both classes have no state, so all layers share these objects.
NotedMaps noted_maps;
LeanMaps lean_maps;

std::vector<at::Tensor> recompute_and_replay(
    LayerCall call, const std::vector<at::Tensor>& inputs,
    const model::StepContext& context,
    const activations::RecomputeOptions& options) {
  const auto replay_log = std::make_shared<model::ReplayLog>();
  return activations::recompute(
      [call = std::move(call), context, replay_log](
          const std::vector<at::Tensor>& given, activations::Pass pass) {
        model::StepContext inside = context;
        inside.runner = nullptr;
        inside.replay_log = replay_log.get();
        // In the first pass no derivation is recorded, because derivations keep
        // their input maps in memory.
        inside.derived = nullptr;
        if (pass == activations::Pass::kAgain) {
          replay_log->start_replay();
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
      // Records how maps are derived from each other, for the use of later
      // layers with another policy.
      model::StepContext inside = context;
      if (maps_are_derived_) inside.derived = &noted_maps;
      return layer.forward(inputs, inside);
    }
    case plan::ActivationPolicy::kLean:
      return run_lean(layer, inputs, context);
    case plan::ActivationPolicy::kRecompute:
      // A layer without inner maps saves only its inputs.
      if (layer.inside() == layers::LayerInside::kNothing)
        return run_lean(layer, inputs, context);
      return run_recomputed(layer, inputs, context);
    case plan::ActivationPolicy::kOffload: {
      const activations::SavedTensorPolicyGuard guard(&offload_);
      return layer.forward(inputs, context);
    }
  }
  HEADROOM_CHECK(false, cat("layer ", index, " has no policy"));
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
  return recompute_and_replay(
      [&layer](const std::vector<at::Tensor>& given,
               const model::StepContext& inside) {
        return layer.forward(given, inside);
      },
      inputs, context, options);
}

model::LayerGraph::LayerRange layers_of_stage(const plan::Plan& plan, int stage,
                                              int64_t num_layers) {
  const auto stages = static_cast<int>(plan.stage_begins.size());
  HEADROOM_CHECK(stage >= 0 && stage < stages,
                 cat("stage ", stage, " of ", stages));
  const auto index = static_cast<size_t>(stage);
  const model::LayerGraph::LayerRange layers = {
      plan.stage_begins[index],
      stage + 1 == stages ? num_layers : plan.stage_begins[index + 1]};
  if (layers.begin < 0 || layers.begin >= layers.end ||
      layers.end > num_layers || plan.stage_begins.front() != 0) {
    throw Error("plan",
                cat("stage ", stage, " holds layers ", layers.begin, " to ",
                    layers.end, " of a model with ", num_layers),
                "leave the plan out: it is chosen anew");
  }
  return layers;
}

pipeline::StageRoutes routes_of_stage(const model::LayerGraph& model,
                                      const plan::Plan& plan, int stage) {
  return pipeline::skip_routes(model.inputs(), plan.stage_begins)
      .at(static_cast<size_t>(stage));
}

namespace {

// Reports an offload file without room as out of memory: the step is dropped
// and the memory ladder moves on.
class WithinRoom final : public model::LayerExecutor {
 public:
  explicit WithinRoom(ActivationRunner::Options options)
      : inner_(std::move(options)) {}

  std::vector<at::Tensor> run(int64_t index, model::Layer& layer,
                              const std::vector<at::Tensor>& inputs,
                              const model::StepContext& context) override {
    try {
      return inner_.run(index, layer, inputs, context);
    } catch (const activations::OffloadError& error) {
      C10_THROW_ERROR(OutOfMemoryError, error.what());
    }
  }

 private:
  ActivationRunner inner_;
};

// A rung of the ladder: it gives policy `to` to layers with a policy in `from`.
struct LeanerPolicy {
  plan::ActivationPolicy to;
  std::vector<plan::ActivationPolicy> from;
  const char* name;
  const char* skip_reason;
};

const std::vector<LeanerPolicy>& leaner_policies() {
  using Policy = plan::ActivationPolicy;
  static const std::vector<LeanerPolicy> policies = {
      {Policy::kLean,
       {Policy::kKeep},
       "layers are lean",
       "lean is skipped: no layer keeps more"},
      {Policy::kRecompute,
       {Policy::kKeep, Policy::kLean},
       "layers are recomputed",
       "recompute is skipped: no layer keeps more"},
      {Policy::kOffload,
       {Policy::kKeep, Policy::kLean, Policy::kRecompute},
       "layers are offloaded",
       "offload is skipped: all layers are"}};
  return policies;
}

}  // namespace

ActivationRungs activation_rungs(const plan::Plan& plan, int64_t num_layers,
                                 int64_t host_memory_limit, bool may_offload) {
  ActivationRunner::Options options;
  options.policies = plan.activation_policies;
  if (options.policies.empty()) {
    options.policies.assign(static_cast<size_t>(num_layers),
                            plan::ActivationPolicy::kKeep);
  }
  if (static_cast<int64_t>(options.policies.size()) != num_layers) {
    throw Error(
        "plan",
        cat(options.policies.size(), " activation policies for a model of ",
            num_layers, " layers"),
        "leave the plan out: it is chosen anew");
  }
  options.layers_join = plan.zero_stage < 3;
  options.host_memory_limit = host_memory_limit;
  ActivationRungs rungs;
  const bool all_keep =
      std::ranges::count(options.policies, plan::ActivationPolicy::kKeep) ==
      num_layers;
  rungs.runners.push_back(all_keep ? nullptr
                                   : std::make_unique<WithinRoom>(options));
  rungs.names.push_back("the plan's policies");
  rungs.policies.push_back(options.policies);
  for (const LeanerPolicy& leaner : leaner_policies()) {
    if (leaner.to == plan::ActivationPolicy::kOffload && !may_offload &&
        !plan::offloads(plan)) {
      rungs.skipped.emplace_back(
          "offload is skipped: the limit is the machine's, and --activations "
          "offload is not given");
      continue;
    }
    bool changes = false;
    for (plan::ActivationPolicy& policy : options.policies) {
      if (std::ranges::find(leaner.from, policy) == leaner.from.end()) continue;
      policy = leaner.to;
      changes = true;
    }
    if (!changes) {
      rungs.skipped.push_back(leaner.skip_reason);
      continue;
    }
    rungs.runners.push_back(std::make_unique<WithinRoom>(options));
    rungs.names.push_back(leaner.name);
    rungs.policies.push_back(options.policies);
  }
  return rungs;
}

void replicate(collectives::Communicator& communicator,
               model::LayerGraph& model) {
  if (communicator.size() == 1) return;
  for (const model::NamedTensor& entry : model.state()) {
    communicator.broadcast(entry.tensor->detach(), 0);
  }
}

void require_same_on_all_ranks(collectives::Communicator& communicator,
                               uint64_t digest, const std::string& what) {
  const std::string mine = std::to_string(digest);
  const std::vector<std::string> all =
      collectives::gather_bytes(communicator, mine);
  for (size_t rank = 0; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw Error(
        "data",
        cat(what, " of rank ", rank, " differ from those of rank 0 (digests ",
            all[rank], " and ", all[0], ")"),
        "put the same data set on every node", ExitCode::kData);
  }
}

}  // namespace headroom::step
