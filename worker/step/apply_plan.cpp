#include "worker/step/apply_plan.h"

#include <c10/util/Exception.h>

#include <algorithm>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/collectives/gather.h"
#include "worker/step/activation_runner.h"

namespace headroom::step {

model::LayerGraph::LayerRange layers_of_stage(const plan::Plan& plan, int stage,
                                              int64_t num_layers) {
  const auto stages = static_cast<int>(plan.stage_begins.size());
  HEADROOM_CHECK(
      stage >= 0 && stage < stages,
      "stage " + std::to_string(stage) + " of " + std::to_string(stages));
  const auto index = static_cast<size_t>(stage);
  const model::LayerGraph::LayerRange layers = {
      plan.stage_begins[index],
      stage + 1 == stages ? num_layers : plan.stage_begins[index + 1]};
  if (layers.begin < 0 || layers.begin >= layers.end ||
      layers.end > num_layers || plan.stage_begins.front() != 0) {
    throw Error("plan",
                "stage " + std::to_string(stage) + " holds layers " +
                    std::to_string(layers.begin) + " to " +
                    std::to_string(layers.end) + " of a model with " +
                    std::to_string(num_layers),
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

// An offload file without room is memory that ran out: the step is completed
// and the ladder goes on.
class WithinRoom final : public model::LayerExecutor {
 public:
  explicit WithinRoom(ActivationRunner::Options options)
      : inner_(std::move(options)) {}

  std::vector<at::Tensor> run(int64_t index, model::Layer& layer,
                              const std::vector<at::Tensor>& inputs,
                              const model::StepContext& context) override {
    try {
      return inner_.run(index, layer, inputs, context);
    } catch (const Error& error) {
      if (error.tag() != "offload") throw;
      C10_THROW_ERROR(OutOfMemoryError, error.what());
    }
  }

 private:
  ActivationRunner inner_;
};

// A rung of the ladder: layers whose policy is one of `from` take `to`.
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
                                 int64_t host_memory_limit) {
  ActivationRunner::Options options;
  options.policies = plan.activation_policies;
  if (options.policies.empty()) {
    options.policies.assign(static_cast<size_t>(num_layers),
                            plan::ActivationPolicy::kKeep);
  }
  if (static_cast<int64_t>(options.policies.size()) != num_layers) {
    throw Error("plan",
                std::to_string(options.policies.size()) +
                    " activation policies for a model of " +
                    std::to_string(num_layers) + " layers",
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
    throw Error("data",
                what + " of rank " + std::to_string(rank) +
                    " differ from those of rank 0 (digests " + all[rank] +
                    " and " + all[0] + ")",
                "put the same data set on every node", ExitCode::kData);
  }
}

}  // namespace headroom::step
