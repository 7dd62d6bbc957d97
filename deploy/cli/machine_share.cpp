#include "deploy/cli/machine_share.h"

#include <algorithm>
#include <optional>

#include "parallel/base/check.h"
#include "parallel/base/device_list.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/plan/plan_parts.h"
#include "parallel/planner/plan_memory.h"
#include "parallel/planner/plan_search.h"
#include "parallel/planner/requested_plan.h"
#include "parallel/predict/host_memory.h"

namespace headroom::cli {
namespace {

constexpr int64_t kMebibyte = int64_t{1} << 20;
// Memory that processes need in addition to tensors and loaders, measured on
// the CPU: 27 MiB in each of three launchers, most of it shared, and 190 MiB in
// a worker.
constexpr int64_t kLauncherBytes = 64 * kMebibyte;
constexpr int64_t kWorkerBytes = 200 * kMebibyte;
// If a worker's memory is bounded, its loaders get at least 1 / kLoaderPart of
// it. With a larger share more images stay in the cache, and less memory is
// left for tensors.
constexpr int64_t kLoaderPart = 4;

bool trains_on_cpu(const configs::RunConfig& config) {
  return config.command == "train" && config.device == kCpuDevice;
}

// With offload --host-memory-limit also bounds the file of offloaded tensors.
bool asks_offload(const configs::RunConfig& config) {
  return config.activations == to_string(plan::ActivationPolicy::kOffload);
}

// The bytes that are left for each worker's tensors and loaders; negative if
// the programs alone need more than is free.
int64_t room_of_worker(const MachineShare& share) {
  return (share.machine.free_bytes - kLauncherBytes) / share.workers_here -
         kWorkerBytes;
}

// Throws if `room`, the bytes of a worker, is not above the `least` bytes that
// its loaders need.
void require_room(const MachineShare& share, int64_t room, int64_t least) {
  if (room > least) return;
  const std::string workers = counted(share.workers_here, "worker");
  const std::string before =
      workers + (share.workers_here == 1 ? " takes " : " take ") +
      format_bytes(kLauncherBytes + share.workers_here * kWorkerBytes) +
      " before the first tensor";
  throw Error(
      "memory",
      share.machine.memory_text() + ", and " + before +
          (room <= 0
               ? ""
               : ", which leaves " + format_bytes(room) +
                     " to each, but its loaders take " + format_bytes(least)),
      cat(room <= 0
              ? ""
              : "use a smaller --img, --batch or --host-memory-limit, or ",
          "give the container or the machine more memory",
          share.workers_here > 1 ? ", or use fewer --processes" : ""),
      ExitCode::kNoPlan);
}

// If the worker's bytes do not suffice, sets the limits that are not given.
void set_limits(const MachineShare& share, int64_t tensors,
                const predict::HostMemory& loaders, configs::RunConfig& config,
                MachineBounds& bounds) {
  const MachineLimits& machine = share.machine;
  const int64_t room = room_of_worker(share);
  int64_t for_loaders = loaders.total_bytes();
  if (tensors + for_loaders <= room) return;
  std::string text;
  if (!config.synthetic_input && !asks_offload(config) &&
      !share.given.contains("host_memory_limit")) {
    const int64_t least = std::max(loaders.least_bytes_unseen(),
                                   std::min(room / kLoaderPart, for_loaders));
    for_loaders = std::min(for_loaders, std::max(least, room - tensors));
    if (for_loaders < loaders.total_bytes()) {
      config.host_memory_limit = for_loaders;
      text = format_bytes(for_loaders) + " for its loaders";
    }
  }
  const bool lacks = tensors > room - for_loaders;
  if (lacks && machine.memory_is_of_container &&
      !share.given.contains("memory_limit")) {
    require_room(share, room, for_loaders);
    config.memory_limit = room - for_loaders;
    config.memory_limit_is_machines = true;
    bounds.bounds_plan = true;
    text = format_bytes(config.memory_limit) + " for its tensors" +
           (text.empty() ? "" : " and " + text);
  }
  if (!text.empty()) {
    bounds.lines.front() =
        "memory: " + machine.memory_text() + "; each worker may take " + text;
  }
  if (lacks && !machine.memory_is_of_container) {
    bounds.lines.push_back(
        "warning: memory: " + machine.memory_text() +
        ", but the run may need " +
        format_bytes(kLauncherBytes +
                     share.workers_here *
                         (kWorkerBytes + tensors + for_loaders)) +
        ": if other programs free none, it swaps or is killed; a smaller "
        "--batch or --img needs less");
  }
}

void bound_threads(const MachineShare& share, configs::RunConfig& config,
                   std::vector<std::string>& lines) {
  const MachineLimits& machine = share.machine;
  if (!machine.cores_are_of_container) return;
  // Threads beyond a quota stop all threads of the container for a while.
  if (!share.given.contains("loader_threads")) {
    config.loader_threads = std::clamp<int64_t>(
        2 * machine.cores / share.workers_here, 1, config.loader_threads);
  }
  lines.push_back(cat("cores: ", machine.cores,
                      " by the container's quota (cgroup), of ",
                      machine.cores_of_mask));
}

}  // namespace

bool limit_largest_batch(const MachineShare& share,
                         configs::RunConfig& config) {
  if (config.global_batch_size != configs::kLargestBatch ||
      config.memory_limit > 0 || !trains_on_cpu(config) ||
      (asks_offload(config) && config.host_memory_limit == 0) ||
      share.machine.memory_bytes == 0) {
    return false;
  }
  const int64_t room = room_of_worker(share);
  if (config.host_memory_limit == 0) {
    config.host_memory_limit =
        std::max(predict::HostMemory().least_bytes_unseen(),
                 std::min(room / kLoaderPart, 2 * configs::kDefaultHostMemory));
  }
  require_room(share, room, config.host_memory_limit);
  config.memory_limit = room - config.host_memory_limit;
  config.memory_limit_is_machines = true;
  return true;
}

bool give_loaders_more(const MachineShare& share, planner::PlanSearch& search,
                       configs::RunConfig& config) {
  const plan::Plan plan =
      search.best(config, share.world_size).plan.value_or(plan::Plan());
  const int64_t least = predict::host_memory(config, plan, search.layers(), {})
                            .least_bytes_unseen();
  if (config.synthetic_input || share.given.contains("host_memory_limit") ||
      least <= config.host_memory_limit) {
    return false;
  }
  const int64_t room = room_of_worker(share);
  require_room(share, room, least);
  config.host_memory_limit = least;
  config.memory_limit = room - least;
  return true;
}

MachineBounds bound_by_machine(const MachineShare& share,
                               planner::PlanSearch& search,
                               configs::RunConfig& config) {
  MachineBounds bounds;
  const MachineLimits& machine = share.machine;
  bounds.lines.push_back(
      machine.memory_is_of_container ? "memory: " + machine.memory_text() : "");
  if (machine.memory_bytes > 0 && !search.layers().empty() &&
      config.global_batch_size != configs::kLargestBatch) {
    const plan::Plan plan =
        search.best(config, share.world_size).plan.value_or(plan::Plan());
    const bool is_known =
        trains_on_cpu(config) && !plan.predicted_peak_bytes.empty();
    set_limits(share, is_known ? planner::fullest_rank_bytes(plan) : 0,
               predict::host_memory(config, plan, search.layers(), {}), config,
               bounds);
  }
  bound_threads(share, config, bounds.lines);
  std::erase(bounds.lines, "");
  return bounds;
}

void require_same_training(const MachineBounds& bounds, int world_size,
                           const planner::RemedyScope& scope,
                           planner::PlanSearch& search,
                           configs::RunConfig& config) {
  if (!bounds.bounds_plan) return;
  const bool may_offload = asks_offload(config);
  const auto is_same = [&](const configs::RunConfig& trial,
                           const plan::Plan& plan) {
    return !planner::shrinks_groups(trial, plan) &&
           (may_offload || !plan::offloads(plan));
  };
  const auto found = search.best(config, world_size);
  if (found.plan && is_same(config, *found.plan)) return;
  if (!found.plan && found.exit_code != ExitCode::kNoPlan) return;
  // The request that needs the least memory without offload and with the usual
  // groups. If it has no plan either, its refusal says how much it needs.
  configs::RunConfig leanest = config;
  if (leanest.activations == "auto") leanest.activations = "recompute";
  leanest.batch_norm_rule = planner::batch_norm_rule(config);
  const auto refused = search.best(leanest, world_size);
  if (refused.plan) {
    config.activations = leanest.activations;
    return;
  }
  planner::RemedyScope narrow = scope;
  narrow.processes_flag.clear();
  narrow.limit_flag.clear();
  narrow.precisions.clear();
  narrow.models.clear();
  narrow.admits = is_same;
  auto remedies = planner::find_remedies(leanest, world_size, search, narrow);
  std::erase_if(remedies, [](const planner::Remedy& remedy) {
    return remedy.kind == planner::RemedyKind::kHostMemoryLimit;
  });
  const std::string more = "give the container more memory";
  throw Error("plan", joined(bounds.lines, "; ") + ": " + refused.reason,
              remedies.empty()
                  ? "use a smaller model, or " + more
                  : planner::remedies_text(remedies, narrow) + ", or " + more,
              ExitCode::kNoPlan);
}

}  // namespace headroom::cli
