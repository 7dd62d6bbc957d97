#include "deploy/cli/machine_share.h"

#include <algorithm>
#include <optional>

#include "parallel/base/check.h"
#include "parallel/base/device_list.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/planner/model_layers.h"
#include "parallel/planner/plan_memory.h"
#include "parallel/planner/planner.h"
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

// Bytes of each worker for tensors and loaders.
int64_t room_of_worker(const MachineShare& share) {
  const int64_t room =
      (share.machine.free_bytes - kLauncherBytes) / share.workers_here -
      kWorkerBytes;
  if (room > 0) return room;
  throw Error(
      "memory",
      cat(share.machine.memory_text(), ", and ",
          counted(share.workers_here, "worker"), " take ",
          format_bytes(kLauncherBytes + share.workers_here * kWorkerBytes),
          " before the first tensor"),
      "give the container or the machine more memory, or use fewer --processes",
      ExitCode::kNoPlan);
}

// Sets the limits that the user left open. Returns the new limits as text; ""
// if everything fits without limits.
std::string set_limits(const MachineShare& share, int64_t tensors,
                       const predict::HostMemory& loaders,
                       configs::RunConfig& config) {
  const int64_t room = room_of_worker(share);
  std::string text;
  int64_t for_loaders = loaders.total_bytes();
  if (tensors + for_loaders <= room) return text;
  if (!config.synthetic_input && !share.given.contains("host_memory_limit")) {
    const int64_t least = std::max(loaders.least_bytes(),
                                   std::min(room / kLoaderPart, for_loaders));
    for_loaders = std::max(least, room - tensors);
    config.host_memory_limit = for_loaders;
    text = format_bytes(for_loaders) + " for its loaders";
  }
  if (tensors > room - for_loaders && !share.given.contains("memory_limit")) {
    config.memory_limit = std::max<int64_t>(1, room - for_loaders);
    text = format_bytes(config.memory_limit) + " for its tensors" +
           (text.empty() ? "" : " and " + text);
  }
  return text;
}

// No value if the model cannot be read, which is refused elsewhere.
std::optional<std::vector<layers::LayerCost>> layers_of(
    const configs::RunConfig& config) {
  try {
    return planner::model_layers(config);
  } catch (const Error&) {
    return std::nullopt;
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

void limit_largest_batch(const MachineShare& share,
                         configs::RunConfig& config) {
  if (config.global_batch_size != configs::kLargestBatch ||
      config.memory_limit > 0 || !trains_on_cpu(config) ||
      share.machine.memory_bytes == 0) {
    return;
  }
  const int64_t room = room_of_worker(share);
  if (config.host_memory_limit == 0) {
    config.host_memory_limit =
        std::min(room / kLoaderPart, 2 * configs::kDefaultHostMemory);
  }
  config.memory_limit = std::max<int64_t>(1, room - config.host_memory_limit);
}

std::vector<std::string> bound_by_machine(const MachineShare& share,
                                          configs::RunConfig& config) {
  std::vector<std::string> lines;
  bound_threads(share, config, lines);
  const MachineLimits& machine = share.machine;
  if (machine.memory_bytes == 0) return lines;
  const std::string limit = "memory: " + machine.memory_text();
  std::string bounds;
  if (config.global_batch_size == configs::kLargestBatch) {
    bounds = format_bytes(config.memory_limit) + " for its tensors";
  } else if (const auto layers = layers_of(config)) {
    const plan::Plan plan =
        planner::choose_plan(config, share.world_size, *layers)
            .plan.value_or(plan::Plan());
    const bool is_known =
        trains_on_cpu(config) && !plan.predicted_peak_bytes.empty();
    bounds =
        set_limits(share, is_known ? planner::fullest_rank_bytes(plan) : 0,
                   predict::host_memory(config, plan, *layers, {}), config);
  }
  if (!bounds.empty()) {
    lines.insert(lines.begin(), limit + "; each worker may take " + bounds);
  } else if (machine.memory_is_of_container) {
    lines.insert(lines.begin(), limit);
  }
  return lines;
}

}  // namespace headroom::cli
