#include "parallel/planner/replan.h"

#include <algorithm>

#include "parallel/base/check.h"
#include "parallel/base/device_list.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/plan/layout.h"
#include "parallel/plan/plan_parts.h"
#include "parallel/planner/plan_memory.h"
#include "parallel/planner/plan_search.h"
#include "parallel/planner/remedies.h"
#include "parallel/predict/host_memory.h"

namespace headroom::planner {
namespace {

int64_t bound_of(int64_t needed, const MemoryShortage& shortage) {
  int64_t bound = needed - needed / 20;
  const int64_t lacking =
      shortage.memory.asked_bytes - shortage.memory.free_bytes;
  if (lacking > 0) bound = std::min(bound, needed - lacking);
  if (shortage.memory.room_bytes > 0)
    bound = std::min(bound, shortage.memory.room_bytes);
  return std::max<int64_t>(1, bound);
}

// The given flags that fix the plan, as in "--layout data=2 and --zero 1".
std::string given_text(const configs::RunConfig& config, bool layout,
                       bool zero) {
  std::string text;
  if (layout) text = "--layout " + plan::short_text(*config.layout);
  if (zero) {
    text += cat(text.empty() ? "" : " and ", "--zero ", config.zero_stage);
  }
  return text;
}

class ReplanSearch {
 public:
  ReplanSearch(const configs::RunConfig& config, const plan::Plan& failed,
               int64_t bound, const ModelOnCard& model)
      : request_(config),
        world_size_(failed.layout.world_size()),
        search_(model) {
    request_.memory_limit = bound;
    request_.batch_norm_rule = failed.batch_norm_rule();
    request_.micro_batch_size = 0;
    // counts the bytes for reading a checkpoint at the start
    request_.resume = "the checkpoint";
    may_offload_ = !config.memory_limit_is_machines || plan::offloads(failed);
  }

  // The plan to continue with, if these flags of the request may change; no
  // value if no plan fits.
  std::optional<plan::Plan> run(bool frees_layout, bool frees_zero) {
    configs::RunConfig trial = request_;
    if (frees_layout) trial.layout.reset();
    if (frees_zero) trial.zero_stage = 0;
    const auto found = with_some_activations(trial);
    if (!found) return std::nullopt;
    return found->plan;
  }

  // The flags with which --resume gets this plan; no value if no flags do.
  std::optional<std::string> resume_flags(const configs::RunConfig& config,
                                          const plan::Plan& plan) {
    configs::RunConfig resumed = config;
    resumed.resume = request_.resume;
    resumed.batch_norm_rule = request_.batch_norm_rule;
    resumed.layout = plan.layout;
    resumed.zero_stage = plan.zero_stage;
    resumed.micro_batch_size = plan.micro_batch_size;
    resumed.memory_limit = request_.memory_limit;
    const auto found = with_some_activations(resumed);
    if (!found) return std::nullopt;
    return cat("--layout ", plan::to_string(plan.layout), " --zero ",
               plan.zero_stage, " --micro-batch ", plan.micro_batch_size,
               " --activations ", found->activations, " --memory-limit ",
               request_.memory_limit);
  }

  // What helps if no plan of these processes fits: more processes, or smaller
  // images. If --resume has one of the plan's flags, those not given return to
  // their defaults. So the search may choose every one of them.
  std::optional<Remedy> other_remedy() {
    configs::RunConfig open = request_;
    open.layout.reset();
    open.zero_stage = 0;
    open.activations = "auto";
    RemedyScope scope;
    scope.limit_flag.clear();
    scope.most_processes = 2 * world_size_ + 8;
    for (const Remedy& remedy :
         find_remedies(open, world_size_, search_, scope)) {
      if (remedy.kind == RemedyKind::kProcesses ||
          remedy.kind == RemedyKind::kImage) {
        return remedy;
      }
    }
    return std::nullopt;
  }

 private:
  struct Found {
    plan::Plan plan;
    std::string activations;
  };
  // "auto" may choose to offload; if the run may not, the leanest other
  // activations are tried too.
  std::optional<Found> with_some_activations(configs::RunConfig trial) {
    for (const char* activations :
         {"auto", may_offload_ ? "offload" : "recompute"}) {
      trial.activations = activations;
      auto plan = search_.best(trial, world_size_).plan;
      if (plan && (may_offload_ || !plan::offloads(*plan))) {
        return Found{*std::move(plan), activations};
      }
    }
    return std::nullopt;
  }

  configs::RunConfig request_;
  const int world_size_;
  bool may_offload_ = true;
  PlanSearch search_;
};

// Names the part of the request that prevents a plan, if there is one.
Replan refuse(const configs::RunConfig& config, const plan::Plan& failed,
              const std::string& numbers, ReplanSearch& search) {
  Replan refusal;
  const bool has_layout = config.layout.has_value();
  const bool has_zero = config.zero_stage > 0;
  for (const auto& [layout, zero] :
       {std::pair(true, false), std::pair(false, true),
        std::pair(true, true)}) {
    if ((layout && !has_layout) || (zero && !has_zero)) continue;
    const std::optional<plan::Plan> other = search.run(layout, zero);
    if (!other) continue;
    const auto flags = search.resume_flags(config, *other);
    if (!flags) continue;
    refusal.reason = numbers + ", and " + given_text(config, layout, zero) +
                     " forbids another plan (" + *flags + " would need " +
                     format_bytes(fullest_rank_bytes(*other)) + ")";
    refusal.resume_flags = *flags;
    return refusal;
  }
  refusal.reason = numbers + ", and no other plan of " +
                   counted(failed.layout.world_size(), "process") + " fits";
  const auto remedy = search.other_remedy();
  if (!remedy) {
    refusal.reason += "; use a machine with more memory, or a smaller model";
    return refusal;
  }
  refusal.resume_flags = cat(flags_text(*remedy),
                             remedy->kind == RemedyKind::kProcesses
                                 ? ""
                                 : cat(" --processes ", remedy->world_size),
                             " --memory-limit ", remedy->config.memory_limit);
  refusal.reason += "; with " + flags_text(*remedy) + " one would need " +
                    format_bytes(fullest_rank_bytes(remedy->plan));
  return refusal;
}

}  // namespace

std::string describe(const MemoryShortage& shortage) {
  std::string text = cat("step ", shortage.step, ", rank ", shortage.rank,
                         ": out of memory with the leanest activations");
  // 0: no tensor was requested, but an allocation on the C++ heap failed
  if (shortage.memory.asked_bytes == 0) return text;
  text += ": asked for " + format_bytes(shortage.memory.asked_bytes) + ", " +
          format_bytes(std::max<int64_t>(0, shortage.memory.free_bytes));
  return text + (shortage.memory.limit_bytes > 0
                     ? " of the " + format_bytes(shortage.memory.limit_bytes) +
                           " of --memory-limit free"
                     : " of the machine's memory free");
}

int64_t leanest_bytes(const configs::RunConfig& config, const plan::Plan& plan,
                      const std::vector<layers::LayerCost>& layers) {
  plan::Plan lean = plan;
  const plan::BatchCut cut = plan::batch_cut(plan, config.global_batch_size);
  if (!plan::smaller_micro_batch_error(cut)) {
    lean.micro_batch_size = plan::smaller_micro_batches(cut).back();
  }
  const auto bytes = [&] {
    return predict::largest_total(predict::estimate_memory(
        predict::memory_request(config, lean, layers)));
  };
  int64_t least = bytes();
  for (const plan::ActivationPolicy policy :
       {plan::ActivationPolicy::kLean, plan::ActivationPolicy::kRecompute,
        plan::ActivationPolicy::kOffload}) {
    if (policy == plan::ActivationPolicy::kOffload &&
        config.memory_limit_is_machines && !plan::offloads(plan)) {
      continue;
    }
    lean.activation_policies.assign(layers.size(), policy);
    least = std::min(least, bytes());
  }
  return least;
}

Replan plan_after_shortage(const configs::RunConfig& config,
                           const plan::Plan& failed,
                           const MemoryShortage& shortage,
                           const ModelOnCard& model) {
  if (model.layers.empty()) {
    return {std::nullopt,
            "the model cannot be read where the coordinator runs, so there is "
            "no other plan; use more --processes, or a smaller --img",
            ""};
  }
  const int64_t needed = leanest_bytes(config, failed, model.layers);
  const int64_t bound = bound_of(needed, shortage);
  ReplanSearch search(config, failed, bound, model);
  if (auto plan = search.run(false, false)) {
    plan->reason =
        "instead of " + plan::to_string(failed.layout) +
        (failed.zero_stage > 0 ? cat(" with ZeRO stage ", failed.zero_stage)
                               : "") +
        ", which needs " + format_bytes(needed) + " at its leanest; " +
        plan->reason;
    return {plan, plan->reason, ""};
  }
  return refuse(config, failed,
                "the plan needs " + format_bytes(needed) +
                    " on a rank at its leanest where " + format_bytes(bound) +
                    " may be had",
                search);
}

std::optional<HostReplan> plan_after_host_shortage(
    const configs::RunConfig& config, const plan::Plan& failed,
    const ModelOnCard& model) {
  if (model.layers.empty()) return std::nullopt;
  HostReplan next{config.host_memory_limit, config.memory_limit,
                  config.memory_limit_is_machines, failed, ""};
  const predict::HostMemory loaders =
      predict::host_memory(config, failed, model.layers, {});
  const int64_t had = loaders.total_bytes();
  const int64_t loader_bytes = std::max(had / 4, loaders.least_bytes_unseen());
  // The limit also bounds the file of offloaded tensors, whose size is unknown.
  if (!config.synthetic_input && loader_bytes < had &&
      !plan::offloads(failed)) {
    next.host_memory_limit = loader_bytes;
    next.reason = "for its loaders " + format_bytes(loader_bytes) +
                  " instead of " + format_bytes(had);
  }
  const bool has_tensors_here = config.device == kCpuDevice &&
                                config.command == "train" &&
                                !failed.predicted_peak_bytes.empty();
  if (has_tensors_here) {
    configs::RunConfig bounded = config;
    bounded.memory_limit_is_machines = true;
    const int64_t tensors = fullest_rank_bytes(failed);
    const int64_t leanest = leanest_bytes(bounded, failed, model.layers);
    for (const int64_t bound : {tensors / 4 * 3, leanest}) {
      if (bound >= tensors) continue;
      auto plan = ReplanSearch(bounded, failed, bound, model).run(false, false);
      if (!plan || fullest_rank_bytes(*plan) >= tensors) continue;
      if (next.host_memory_limit > 0 && plan::offloads(*plan)) continue;
      next.memory_limit = bound;
      next.memory_limit_is_machines = true;
      next.reason +=
          (next.reason.empty() ? "" : ", and ") +
          ("for its tensors " + format_bytes(fullest_rank_bytes(*plan)) +
           " instead of " + format_bytes(tensors));
      next.plan = *std::move(plan);
      break;
    }
  }
  if (next.reason.empty()) return std::nullopt;
  return next;
}

ElasticPlan plan_for_workers(const configs::RunConfig& config,
                             const plan::Plan& wanted, int workers,
                             const ModelOnCard& model) {
  HEADROOM_CHECK(workers >= 1, cat(workers, " workers"));
  const int asked = wanted.layout.world_size();
  const bool keeps = workers == asked || (workers > asked && config.layout);
  if (keeps) return {wanted, wanted.reason};
  configs::RunConfig open = config;
  open.layout.reset();
  open.batch_norm_rule = wanted.batch_norm_rule();
  PlanSearch search(model);
  ElasticPlan found;
  for (int count = workers; count >= 1 && !found.plan; --count) {
    if (count == asked) return {wanted, wanted.reason};
    const PlanDecision decision = search.best(open, count);
    found = {decision.plan, decision.reason};
  }
  return found;
}

}  // namespace headroom::planner
