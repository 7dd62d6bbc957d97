#include "parallel/planner/requested_plan.h"

#include <algorithm>
#include <vector>

#include "parallel/base/device_list.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/plan/batch_split.h"
#include "parallel/plan/layout.h"
#include "parallel/plan/plan_parts.h"
#include "parallel/planner/stage_cut.h"

namespace headroom::planner {
namespace {

struct Refusal {
  std::string reason;
  std::string remedy;
};
// The refusal of the first check that fails; no value if all pass.
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
  const int64_t most = most_stages(layers);
  if (layout.pipeline_parallel_size <= most) return std::nullopt;
  return Refusal{cat("--layout pipeline=", layout.pipeline_parallel_size,
                     ": every stage needs a layer with parameters, and ",
                     layout.pipeline_parallel_size, " stages > ", most,
                     " such layers of the model"),
                 cat("use pipeline=", most, " or less")};
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
  // The other commands give whole batches to each rank.
  if (config.command != "train") return std::nullopt;
  const int64_t group = plan::largest_group(batch, rule);
  if (config.micro_batch_size > 0) {
    plan.micro_batch_size = std::min(config.micro_batch_size, share);
  } else if (plan.layout.pipeline_parallel_size > 1 && share >= 2 * group) {
    plan.micro_batch_size = group;
  }
  if (const auto why =
          plan::groups_error(plan::batch_cut(plan, config.global_batch_size))) {
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
  const auto why = plan::capture_error(
      plan, plan::batch_cut(plan, config.global_batch_size));
  if (!why) return std::nullopt;
  return Refusal{
      "--cuda-graphs captures layers that wait for nobody, but " + *why,
      "use --layout data=N, --zero 0 or 1, --activations keep, lean or "
      "recompute and a --bn-group within a rank's share, or leave it out"};
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

// The policy of --activations; for "auto" the fastest one, kKeep.
plan::ActivationPolicy policy_of(const configs::RunConfig& config) {
  return plan::parse_activation_policy(config.activations)
      .value_or(plan::ActivationPolicy::kKeep);
}

// Sets the values of the plan in this order, because each value depends on
// earlier ones.
Check fill_plan(const configs::RunConfig& config, int world_size,
                PlanMemory& memory, plan::Plan& plan) {
  const std::vector<layers::LayerCost>& layers = memory.layers();
  plan.layout = config.layout.value_or(
      plan::ParallelLayout{.data_parallel_size = world_size});
  plan.zero_stage = static_cast<int>(config.zero_stage);
  if (auto no = check_world_size(plan.layout, world_size)) return no;
  HEADROOM_CHECK(!layers.empty() || !plan_needs_layers(config),
                 "a plan for layers without layers");
  if (policy_of(config) != plan::ActivationPolicy::kKeep) {
    plan.activation_policies.assign(layers.size(), policy_of(config));
  }
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
  if (plan.layout.pipeline_parallel_size > 1) {
    plan.stage_begins = memory.stage_begins(config, plan);
  }
  return set_backend(config, plan);
}

}  // namespace

PlanDecision requested_plan(const configs::RunConfig& config, int world_size,
                            PlanMemory& memory) {
  plan::Plan plan;
  if (const Check no = fill_plan(config, world_size, memory, plan)) {
    return {std::nullopt, no->reason, no->remedy, ExitCode::kRequest};
  }
  if (config.command == "train" && !memory.layers().empty()) {
    if (const auto shortage = host_shortage(config, memory.layers(), plan)) {
      return {std::nullopt, *shortage, "", ExitCode::kNoPlan};
    }
  }
  plan.reason = reason_of(config, plan);
  return {plan, plan.reason, "", ExitCode::kDone};
}

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
      counted(plan::num_micro_batches(plan, config.global_batch_size),
              "micro-batch"),
      " of ", plan.micro_batch_size, ", batch-norm groups of ",
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

}  // namespace headroom::planner
