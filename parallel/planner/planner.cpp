#include "parallel/planner/planner.h"

#include <algorithm>

#include "parallel/base/device_list.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/plan/batch_split.h"
#include "parallel/plan/layout.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/fit_memory.h"
#include "parallel/planner/plan_memory.h"
#include "parallel/planner/saved_plan.h"
#include "parallel/planner/stage_cut.h"

namespace headroom::planner {
namespace {

struct Refusal {
  std::string reason;
  std::string remedy;
};
// The refusal of the first check that fails; nothing if all pass.
using Check = std::optional<Refusal>;

std::string factors_of(const plan::ParallelLayout& layout) {
  return cat("data ", layout.data_parallel_size, " x pipeline ",
             layout.pipeline_parallel_size, " x spatial ",
             layout.spatial_parallel_size);
}

std::string product_of(const plan::ParallelLayout& layout) {
  return cat(factors_of(layout), " = ", layout.world_size());
}

Check check_world_size(const plan::ParallelLayout& layout, int world_size) {
  if (layout.world_size() == world_size) return std::nullopt;
  return Refusal{
      cat("--layout: ", factors_of(layout), " = ",
          counted(layout.world_size(), "process"),
          world_size == 1 ? ", but there is " : ", but there are ", world_size),
      cat("use --processes ", layout.world_size(),
          " (under mpirun or srun it counts per slot), or a layout of ",
          world_size)};
}

Check check_batch(const configs::RunConfig& config, const plan::Plan& plan) {
  const int64_t batch = config.global_batch_size;
  const int data = plan.layout.data_parallel_size;
  if (batch < data) {
    return Refusal{cat("global_batch_size (--batch) ", batch, " < data axis ",
                       data, ": a process would have no image"),
                   cat("use --batch ", data,
                       " or more, or --layout "
                       "data=",
                       std::max<int64_t>(batch, 1), " or less")};
  }
  const int64_t group = config.batch_norm_group_size;
  if (config.sync_batch_norm && group != 0 && group != batch) {
    return Refusal{cat("--sync-bn makes one group of the whole --batch of ",
                       batch, ", but --bn-group is ", group),
                   "leave one of the two out"};
  }
  if (group > batch) {
    return Refusal{cat("batch_norm_group_size (--bn-group) ", group,
                       " > global_batch_size (--batch) ", batch),
                   cat("use --bn-group ", batch, " for one group per step")};
  }
  return std::nullopt;
}

Check check_stages(const plan::ParallelLayout& layout,
                   const std::vector<layers::LayerCost>& layers) {
  const auto with_parameters = std::count_if(
      layers.begin(), layers.end(),
      [](const layers::LayerCost& layer) { return layer.parameters > 0; });
  if (layout.pipeline_parallel_size <= with_parameters) return std::nullopt;
  return Refusal{cat("--layout pipeline=", layout.pipeline_parallel_size,
                     ": every stage needs a layer with parameters, and ",
                     layout.pipeline_parallel_size, " stages > ",
                     with_parameters, " such layers of the model"),
                 cat("use pipeline=", with_parameters, " or less")};
}

Check check_tiles(const configs::RunConfig& config,
                  const plan::ParallelLayout& layout,
                  const std::vector<layers::LayerCost>& layers) {
  const int spatial = layout.spatial_parallel_size;
  if (spatial == 1) return std::nullopt;
  const int64_t stride = layers::largest_stride(layers);
  const int64_t height =
      layers::rounded_image_size(config.image_height, stride);
  const int64_t blocks = height / stride;
  if (spatial <= blocks) return std::nullopt;
  return Refusal{cat("--layout spatial=", spatial,
                     ": an image is cut at multiples of the model's largest "
                     "stride, and ",
                     spatial, " ranks > ", height, " rows / ", stride, " = ",
                     blocks, " blocks"),
                 cat("use spatial=", blocks, " or less, or --img ",
                     spatial * stride, " or more")};
}

Check check_scales(const configs::RunConfig& config,
                   const plan::ParallelLayout& layout) {
  if (!config.multi_scale || layout.spatial_parallel_size == 1) {
    return std::nullopt;
  }
  return Refusal{
      "--multi-scale resizes whole images, and the layout is " +
          product_of(layout),
      cat("use --layout data=", layout.world_size(),
          ", with --zero and --activations where memory is short, or a "
          "pipeline")};
}

Check check_teacher(const configs::RunConfig& config,
                    const plan::ParallelLayout& layout) {
  const bool is_cut =
      layout.pipeline_parallel_size > 1 || layout.spatial_parallel_size > 1;
  if (config.teacher.empty() || !is_cut) return std::nullopt;
  return Refusal{
      "--teacher looks at whole images with its whole network, and "
      "the layout is " +
          product_of(layout),
      cat("use --layout data=", layout.world_size(),
          ", with --zero and --activations where memory is short")};
}

Check set_batch_split(const configs::RunConfig& config, plan::Plan& plan) {
  const int64_t batch = config.global_batch_size;
  const plan::BatchNormRule rule = batch_norm_rule(config);
  plan.batch_norm_group_size = rule.size;
  plan.even_batch_norm_groups = rule.even;
  const int64_t share =
      plan::largest_share(batch, plan.layout.data_parallel_size, rule);
  plan.micro_batch_size = share;
  // each rank has whole batches
  if (config.command != "train") return std::nullopt;
  const int64_t group = plan::largest_group(batch, rule);
  if (config.micro_batch_size > 0) {
    plan.micro_batch_size = std::min(config.micro_batch_size, share);
  } else if (plan.layout.pipeline_parallel_size > 1 && share >= 2 * group) {
    plan.micro_batch_size = group;
  }
  if (const auto why = plan::groups_error(batch_cut(config, plan))) {
    const int64_t below = plan.micro_batch_size / group * group;
    return Refusal{
        *why + ": the samples of a group must be in flight together",
        cat("use --micro-batch ", below > 0 ? below : std::min(group, share),
            ", or --bn-group ", plan.micro_batch_size,
            " from the start of a run: it changes the mathematics")};
  }
  return std::nullopt;
}

Check check_graphs(const configs::RunConfig& config, const plan::Plan& plan) {
  if (!config.cuda_graphs) return std::nullopt;
  const auto why = plan::capture_error(plan, batch_cut(config, plan));
  if (!why) return std::nullopt;
  return Refusal{
      "--cuda-graphs captures layers that wait for nobody, but " + *why,
      "use --layout data=N, --zero 0 or 1, --activations keep, lean or "
      "recompute and a --bn-group within a rank's share, or leave it out"};
}

Check set_stages(const configs::RunConfig& config,
                 const std::vector<layers::LayerCost>& layers,
                 plan::Plan& plan) {
  if (plan.layout.pipeline_parallel_size == 1) return std::nullopt;
  const PartitionDecision decision = cut_stages(config, plan, layers);
  if (!decision.partition) {
    return Refusal{decision.reason, "use fewer pipeline stages"};
  }
  plan.stage_begins = decision.partition->stage_begins;
  return std::nullopt;
}

// The axes as text: "data 2 x pipeline 2", "1 process".
std::string axes_of(const plan::ParallelLayout& layout) {
  std::string text;
  const auto add = [&](const std::string& axis, int size) {
    if (size == 1) return;
    text += cat(text.empty() ? "" : " x ", axis, " ", size);
  };
  add("data", layout.data_parallel_size);
  add("pipeline", layout.pipeline_parallel_size);
  add("spatial", layout.spatial_parallel_size);
  return text.empty() ? "1 process" : text;
}

Check set_backend(const configs::RunConfig& config, plan::Plan& plan) {
  if (config.backend == plan::Backend::kNccl &&
      !computes_on_cards(config.device) &&
      !is_automatic_device(config.device)) {
    return Refusal{
        "--backend nccl exchanges the memory of devices, and the "
        "processes compute on the CPU",
        "name cards with --device, or use --backend gloo"};
  }
  plan.backend = backend_of(config);
  return std::nullopt;
}

// Keeping everything is the fastest policy.
plan::ActivationPolicy policy_of(const configs::RunConfig& config) {
  return plan::parse_activation_policy(config.activations)
      .value_or(plan::ActivationPolicy::kKeep);
}

void set_activations(const configs::RunConfig& config,
                     const std::vector<layers::LayerCost>& layers,
                     plan::Plan& plan) {
  const plan::ActivationPolicy policy = policy_of(config);
  if (policy != plan::ActivationPolicy::kKeep) {
    plan.activation_policies.assign(layers.size(), policy);
  }
}

Check fill_plan(const configs::RunConfig& config, int world_size,
                const std::vector<layers::LayerCost>& layers,
                plan::Plan& plan) {
  plan.layout = config.layout.value_or(
      plan::ParallelLayout{.data_parallel_size = world_size});
  plan.zero_stage = static_cast<int>(config.zero_stage);
  if (auto no = check_world_size(plan.layout, world_size)) return no;
  HEADROOM_CHECK(!layers.empty() || !plan_needs_layers(config),
                 "a plan for layers without layers");
  set_activations(config, layers, plan);
  if (config.command == "train") {
    if (auto no = check_batch(config, plan)) return no;
  }
  if (plan.layout.pipeline_parallel_size > 1) {
    if (auto no = check_stages(plan.layout, layers)) return no;
  }
  if (auto no = check_tiles(config, plan.layout, layers)) return no;
  if (auto no = check_scales(config, plan.layout)) return no;
  if (auto no = check_teacher(config, plan.layout)) return no;
  if (auto no = set_batch_split(config, plan)) return no;
  if (auto no = check_graphs(config, plan)) return no;
  if (auto no = set_stages(config, layers, plan)) return no;
  return set_backend(config, plan);
}

PlanDecision plan_without_bytes(const configs::RunConfig& config,
                                int world_size,
                                const std::vector<layers::LayerCost>& layers) {
  plan::Plan plan;
  PlanDecision decision;
  if (const Check no = fill_plan(config, world_size, layers, plan)) {
    decision.reason = no->reason;
    decision.remedy = no->remedy;
    decision.exit_code = ExitCode::kRequest;
    return decision;
  }
  plan.reason = reason_of(config, plan);
  decision.reason = plan.reason;
  decision.plan = plan;
  return decision;
}

// Plans without a limit on device memory.
PlanDecision plan_with_host_memory(
    const configs::RunConfig& config, int world_size,
    const std::vector<layers::LayerCost>& layers) {
  PlanDecision decision = plan_without_bytes(config, world_size, layers);
  if (decision.plan && config.command == "train" && !layers.empty()) {
    if (auto shortage = host_shortage(config, layers, *decision.plan)) {
      return {std::nullopt, *shortage, "", ExitCode::kNoPlan};
    }
  }
  return decision;
}

// Chooses the plan without a memory limit. REQUIRES: layers.
PlanDecision plan_without_limit(const configs::RunConfig& config,
                                int world_size,
                                const std::vector<layers::LayerCost>& layers) {
  PlanDecision decision = plan_with_host_memory(config, world_size, layers);
  if (!config.layout && decision.plan &&
      exchanges_far(config, *decision.plan)) {
    const auto fit = [&](const configs::RunConfig& trial) {
      return plan_with_host_memory(trial, world_size, layers);
    };
    if (auto found = choose_layout(config, world_size, layers, fit)) {
      decision = std::move(*found);
    }
  }
  if (decision.plan) predict_memory(config, layers, *decision.plan);
  return decision;
}

// Like decide(), but returns any plan that fits, without its bytes.
PlanDecision decide_whether(const configs::RunConfig& config, int world_size,
                            const std::vector<layers::LayerCost>& layers) {
  if (config.memory_limit == 0 || config.command != "train" || layers.empty()) {
    return plan_with_host_memory(config, world_size, layers);
  }
  configs::RunConfig trial = config;
  for (const plan::ParallelLayout& layout :
       config.layout ? std::vector<plan::ParallelLayout>{*config.layout}
                     : plan::layouts_of(world_size)) {
    trial.layout = layout;
    if (auto found =
            any_fit(trial, world_size, layers, plan_with_host_memory)) {
      return *found;
    }
  }
  return {std::nullopt, "", "", ExitCode::kNoPlan};
}

PlanDecision decide(const configs::RunConfig& config, int world_size,
                    const std::vector<layers::LayerCost>& layers,
                    PlanAnswer answer) {
  if (answer == PlanAnswer::kWhetherFits) {
    return decide_whether(config, world_size, layers);
  }
  if (config.command != "train" || layers.empty()) {
    return plan_without_bytes(config, world_size, layers);
  }
  if (config.memory_limit == 0) {
    return answer == PlanAnswer::kWhetherAdmissible
               ? plan_without_bytes(config, world_size, layers)
               : plan_without_limit(config, world_size, layers);
  }
  if (!config.layout && world_size > 1) {
    const auto fit = [&](const configs::RunConfig& trial) {
      if (!any_fit(trial, world_size, layers, plan_with_host_memory)) {
        return PlanDecision{};
      }
      return fit_memory(trial, world_size, layers, plan_with_host_memory,
                        PlanAnswer::kWithoutRemedy);
    };
    if (auto found = choose_layout(config, world_size, layers, fit)) {
      return *found;
    }
  }
  return fit_memory(config, world_size, layers, plan_with_host_memory, answer);
}

// Plans the changed requests of remedies.
TryPlan planner_of(const std::vector<layers::LayerCost>& layers) {
  return
      [&layers](const configs::RunConfig& trial, int processes, bool is_final) {
        return choose_plan(trial, processes, layers,
                           is_final ? PlanAnswer::kWithoutRemedy
                                    : PlanAnswer::kWhetherFits)
            .plan;
      };
}

}  // namespace

plan::BatchNormRule batch_norm_rule(const configs::RunConfig& config) {
  if (config.batch_norm_rule) return *config.batch_norm_rule;
  if (config.batch_norm_group_size > 0) return {config.batch_norm_group_size};
  if (config.sync_batch_norm) return {config.global_batch_size};
  return plan::usual_batch_norm_rule(config.global_batch_size);
}

bool chooses_batch_norm_groups(const configs::RunConfig& config) {
  return !config.batch_norm_rule && config.batch_norm_group_size == 0 &&
         !config.sync_batch_norm;
}

bool shrinks_groups(const configs::RunConfig& config, const plan::Plan& plan) {
  const plan::BatchNormRule rule = plan.batch_norm_rule();
  return chooses_batch_norm_groups(config) && rule.even &&
         rule.size < batch_norm_rule(config).size;
}

std::vector<Remedy> remedies_for_groups(
    const configs::RunConfig& config, int world_size,
    const std::vector<layers::LayerCost>& layers, const RemedyScope& scope) {
  configs::RunConfig usual = config;
  usual.batch_norm_rule = batch_norm_rule(config);
  std::vector<Remedy> remedies =
      find_remedies(usual, world_size, layers, scope, planner_of(layers));
  // A smaller batch would have other groups.
  std::erase_if(remedies, [](const Remedy& remedy) {
    return remedy.kind == RemedyKind::kBatch;
  });
  return remedies;
}

std::optional<std::string> smaller_groups_warning(
    const configs::RunConfig& config, const plan::Plan& plan,
    const std::vector<layers::LayerCost>& layers, const RemedyScope& scope) {
  if (!shrinks_groups(config, plan)) return std::nullopt;
  const int64_t batch = config.global_batch_size;
  const int world_size = plan.layout.world_size();
  return "batch-norm groups of " +
         plan::group_sizes_text(batch, plan.batch_norm_rule()) +
         " instead of " +
         plan::group_sizes_text(batch, batch_norm_rule(config)) +
         " images, which fit no plan of " + counted(world_size, "process") +
         " within " + format_bytes(config.memory_limit) +
         ". Statistics of fewer images are noisier: the weights become others, "
         "often less accurate ones. To keep the usual groups, " +
         remedies_text(remedies_for_groups(config, world_size, layers, scope),
                       scope);
}

plan::Backend backend_of(const configs::RunConfig& config) {
  if (config.backend == plan::Backend::kMpi ||
      config.backend == plan::Backend::kGloo) {
    return config.backend;
  }
  return !computes_on_cards(config.device) ? plan::Backend::kGloo
                                           : plan::Backend::kNccl;
}

std::string reason_of(const configs::RunConfig& config,
                      const plan::Plan& plan) {
  std::string text = counted(config.global_batch_size, "image") + " over " +
                     axes_of(plan.layout) + ", ";
  text += cat(
      counted(num_micro_batches(config, plan), "micro-batch"), " of ",
      plan.micro_batch_size, ", batch-norm groups of ",
      plan::group_sizes_text(config.global_batch_size, plan.batch_norm_rule()));
  if (plan.zero_stage > 0) {
    text += cat(", ZeRO stage ", plan.zero_stage);
    if (plan.layout.data_parallel_size == 1) {
      text += " (which a data axis of 1 leaves without effect)";
    }
  }
  if (plan.stage_begins.size() > 1) {
    text += ", stages from layers " +
            joined(plan.stage_begins, ", ",
                   [](int64_t layer) { return std::to_string(layer); });
  }
  if (!plan.activation_policies.empty()) {
    text += ", activations " + plan::activations_text(plan.activation_policies);
  }
  if (plan.backend == plan::Backend::kNccl &&
      (plan.layout.pipeline_parallel_size > 1 ||
       plan.layout.spatial_parallel_size > 1)) {
    text += ", messages between two ranks through the host";
  }
  return text;
}

bool plan_needs_layers(const configs::RunConfig& config) {
  const plan::ParallelLayout layout =
      config.layout.value_or(plan::ParallelLayout());
  return layout.pipeline_parallel_size > 1 ||
         layout.spatial_parallel_size > 1 ||
         policy_of(config) != plan::ActivationPolicy::kKeep ||
         (config.command == "train" && config.memory_limit > 0);
}

PlanDecision choose_plan(const configs::RunConfig& config, int world_size,
                         const std::vector<layers::LayerCost>& layers,
                         PlanAnswer answer) {
  HEADROOM_CHECK(world_size >= 1, cat("world_size ", world_size));
  PlanDecision decision = decide(config, world_size, layers, answer);
  if (decision.plan) {
    decision.reason =
        (config.layout ? "as asked: " : "chosen: ") + decision.reason;
    decision.plan->reason = decision.reason;
  } else if (decision.exit_code == ExitCode::kNoPlan &&
             answer == PlanAnswer::kAll) {
    decision.remedy = remedy_of(config, world_size, layers, {});
  }
  return decision;
}

std::string remedy_of(const configs::RunConfig& config, int world_size,
                      const std::vector<layers::LayerCost>& layers,
                      const RemedyScope& scope) {
  return remedies_text(
      find_remedies(config, world_size, layers, scope, planner_of(layers)),
      scope);
}

plan::Plan plan_or_throw(const configs::RunConfig& config, int world_size,
                         const std::vector<layers::LayerCost>& layers,
                         const RemedyScope& scope) {
  PlanDecision decision =
      choose_plan(config, world_size, layers, PlanAnswer::kWithoutRemedy);
  if (!decision.plan) {
    if (decision.exit_code == ExitCode::kNoPlan) {
      decision.remedy = remedy_of(config, world_size, layers, scope);
    }
    throw Error("plan", decision.reason, decision.remedy, decision.exit_code);
  }
  return *decision.plan;
}

void require_plan_on_some_device(const configs::RunConfig& config,
                                 int world_size,
                                 const std::vector<layers::LayerCost>& layers,
                                 const RemedyScope& scope) {
  if (is_automatic_device(config.device)) {
    configs::RunConfig on_cards = config;
    on_cards.device = kAllCards;
    if (on_cards.precision == configs::Precision::kAuto) {
      on_cards.precision = configs::Precision::kBf16;
    }
    if (choose_plan(on_cards, world_size, layers).plan) return;
  }
  plan_or_throw(config, world_size, layers, scope);
}

}  // namespace headroom::planner
