#include "deploy/cli/plan/plan_machines.h"

#include <algorithm>

#include "deploy/cli/plan/plan_segments.h"
#include "parallel/base/check.h"
#include "parallel/base/device_list.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/nvml/nvml.h"
#include "parallel/plan/layout.h"
#include "parallel/planner/model_layers.h"
#include "parallel/planner/plan_memory.h"
#include "parallel/planner/plan_time.h"
#include "parallel/predict/nccl_memory.h"
#include "parallel/predict/time_model.h"

namespace headroom::cli {
namespace {

constexpr int64_t kMostNodes = 512;  // 4,096 ranks, 8 per instance
constexpr int kMostCards = 16;       // the most cards of a machine in a remedy

int64_t nodes_of(const std::string& text, const std::string& given,
                 const std::string& what) {
  const auto nodes = parse_whole(text, 1, kMostNodes);
  if (!nodes) {
    throw Error(
        "command line", given + ": '" + text + "' is no number of " + what,
        cat("write a whole number from 1 to ", kMostNodes, " after the colon"));
  }
  return *nodes;
}

bool is_given(const CommandLine& line, const std::string& spelling) {
  return std::any_of(
      line.run_flags.begin(), line.run_flags.end(),
      [&](const configs::FlagUse& use) { return use.spelling == spelling; });
}

// The value of --device if it names cards, else "".
std::string cards_given(const CommandLine& line) {
  std::string device;
  for (const configs::FlagUse& use : line.run_flags) {
    if (use.spelling == "--device") device = use.values.front();
  }
  return parse_device_list(device).empty() ? "" : device;
}

// If several cards have this name: which one the plan is for, and how to name
// the others.
std::string variants_note(const std::string& name,
                          const std::vector<const configs::Instance*>& cards) {
  if (cards.size() == 1) return "";
  return name + " may be " +
         joined(cards, " or ",
                [](const configs::Instance* card) { return card->name; }) +
         ": planned for " + cards.front()->name;
}

// Before the run starts, all memory in use belongs to other programs.
int64_t bytes_left(const nvml::Card& card) {
  return card.total_bytes - card.reserved_bytes -
         nvml::bytes_of_others(card, {}, 0);
}

// NCCL's bytes for a data-parallel run. The further groups of other layouts are
// counted when their plan is known (segment_room).
int64_t data_parallel_bytes(const PlanMachines& machines, int64_t ranks = 0) {
  if (ranks == 0) ranks = machines.num_gpus();
  return machines.communication_bytes(
      {.data_parallel_size = static_cast<int>(ranks)}, 0);
}

// Whether the catalogue has the speeds of these machines that a forecast for
// any number of them needs.
bool has_forecast(const PlanMachines& machines) {
  const auto& instance = machines.instance;
  return instance && instance->tensor_teraflops > 0 &&
         (machines.is_card() || instance->network_gigabits_per_second > 0);
}

// Seconds of a step on as many of the machines as the plan needs.
double seconds_on(const PlanMachines& machines,
                  const configs::RunConfig& config, const plan::Plan& plan,
                  const std::vector<layers::LayerCost>& layers) {
  configs::Instance instance = *machines.instance;
  const int64_t ranks = plan.layout.world_size();
  if (machines.is_card()) instance.gpus = ranks;
  planner::ForecastBasis basis;
  basis.machines = planner::machines_of(instance, ranks);
  basis.card = planner::card_speed(instance);
  basis.cores_each = instance.cores;
  return planner::plan_forecast(config, plan, layers, basis).seconds();
}

// The number after the colon counts cards or machines. Returns the GPUs of one
// card, which is 1, or of one machine.
int64_t gpus_counted_each(const PlanMachines& machines) {
  return machines.is_card() ? 1 : machines.instance->gpus;
}

// Throws Error if --gpu names a machine, or --cluster a card.
void refuse_other_kind(const PlanMachines& machines, const std::string& name) {
  const bool is_machine = std::ranges::any_of(
      configs::instance_catalogue(),
      [&](const configs::Instance& one) { return one.name == name; });
  if (machines.is_card() && is_machine) {
    throw Error("command line",
                machines.flag + ": " + name + " is a machine, not a card",
                "give --cluster " + name);
  }
  if (!machines.is_card() && !is_machine && configs::known_card(name)) {
    throw Error("command line",
                machines.flag + ": " + name + " is a card, not a machine",
                "give --gpu that name");
  }
}

}  // namespace

std::string why_unusable(const configs::Instance& instance) {
  if (instance.needs_arm) {
    return instance.gpu +
           " has an ARM processor beside it, and Headroom is built for x86-64";
  }
  if (predict::wheel_has_code_for(instance.compute_capability)) return "";
  return instance.gpu + " has compute capability " +
         capability_text(instance.compute_capability) +
         ", and this LibTorch (CUDA 13) has code for 7.5 and up";
}

std::string why_unusable(const std::optional<PlanMachines>& machines) {
  return machines && machines->instance ? why_unusable(*machines->instance)
                                        : "";
}

std::optional<PlanMachines> machines_of(const CommandLine& line,
                                        const nvml::Nvml& nvml) {
  const std::string device = cards_given(line);
  PlanMachines machines;
  for (const char* flag : {"--cluster", "--gpu", "--gpu-memory"}) {
    if (!line.has(flag)) continue;
    if (!machines.flag.empty()) {
      throw Error("command line",
                  machines.flag + " names the GPUs, and " + flag + " others",
                  "give one of them");
    }
    machines.flag = flag;
  }
  if (!device.empty() && !machines.flag.empty()) {
    throw Error("command line",
                "--device " + device + " names this machine's GPUs, and " +
                    machines.flag + " others",
                "give one of them");
  }
  if (device.empty() && machines.flag.empty()) return std::nullopt;
  if (!device.empty()) {
    machines.flag = "--device";
    machines.cards = nvml::cards_asked_for(device, nvml);
    const auto left = std::ranges::min(machines.cards, {}, bytes_left);
    machines.gpu_memory_bytes = bytes_left(left);
  } else if (machines.flag != "--gpu-memory") {
    const std::string given = line.value_of(machines.flag);
    const size_t colon = given.rfind(':');
    const std::string name = given.substr(0, colon);
    const int64_t number =
        colon == std::string::npos
            ? 1
            : nodes_of(given.substr(colon + 1), machines.flag + " " + given,
                       machines.is_card() ? "cards" : "nodes");
    refuse_other_kind(machines, name);
    if (machines.is_card()) {
      const auto variants = configs::cards_named(name);
      machines.instance = *variants.front();
      machines.instance->gpus = number;
      machines.note = variants_note(name, variants);
    } else {
      machines.instance = configs::find_instance(name);
    }
    machines.nodes = machines.is_card() ? 1 : number;
    if (machines.num_gpus() == 1) machines.instance->link.clear();
    machines.gpu_memory_bytes = machines.instance->gpu_memory_bytes;
  } else {
    const std::string given = line.value_of("--gpu-memory");
    if (const auto fault = size_fault("--gpu-memory", given)) {
      throw Error("command line", fault->what, fault->remedy);
    }
    machines.gpu_memory_bytes = *parse_bytes(given);
    if (machines.gpu_memory_bytes < 1) {
      throw Error("command line", "--gpu-memory " + given + " is no size",
                  "write it as 8GiB");
    }
    const configs::RunConfig asked =
        configs::run_config_from_flags("train", line.run_flags);
    machines.processes = asked.layout ? asked.layout->world_size()
                                      : std::max<int64_t>(1, asked.processes);
  }
  const int64_t communication = data_parallel_bytes(machines);
  machines.budget_bytes =
      predict::tensor_budget(machines.gpu_memory_bytes, communication);
  if (machines.budget_bytes == 0) {
    throw Error("command line",
                "GPUs of " + format_bytes(machines.gpu_memory_bytes) +
                    " have nothing left beside the reserve of " +
                    format_bytes(predict::kGpuContextBytes + communication),
                machines.cards.empty() ? "name larger ones"
                                       : "free some of it, or name others");
  }
  return machines;
}

int64_t PlanMachines::communication_bytes(const plan::ParallelLayout& layout,
                                          int zero_stage) const {
  if (layout.world_size() == 1) return 0;
  if (!instance && cards.empty()) return predict::kGpuCommunicationBytes;
  // For cards of this machine NVLink is assumed: only their number is known
  // here. A run measures the real value.
  const bool has_nvlink = instance ? instance->link.starts_with("NV") : true;
  return predict::nccl_bytes(
      layout, zero_stage,
      {.cards_of_machine = instance ? instance->gpus : num_gpus(),
       .has_nvlink = has_nvlink});
}

int64_t PlanMachines::segment_room(const plan::Plan& plan) const {
  return gpu_memory_bytes - predict::kGpuContextBytes -
         communication_bytes(plan.layout, plan.zero_stage);
}

std::optional<wire::NodeCard> PlanMachines::elsewhere() const {
  if (!cards.empty()) return std::nullopt;
  wire::NodeCard card;
  if (instance) {
    card.name = instance->gpu;
    card.compute_capability = instance->compute_capability;
  }
  return card;
}

CommandLine with_machines(CommandLine line, const PlanMachines& machines) {
  const bool is_here = !machines.cards.empty();
  if (is_given(line, "--memory-limit") && !is_here) {
    throw Error("command line",
                "--memory-limit bounds the processes here, but the plan is for "
                "GPUs that are not here",
                "leave it out, or give --gpu-memory instead");
  }
  if (machines.instance || is_here) {
    if (is_given(line, "--processes")) {
      throw Error("command line",
                  "--processes is given, but " + machines.flag + " has " +
                      counted(machines.num_gpus(), "GPU") +
                      " and runs a process on each",
                  "leave it out");
    }
    line.run_flags.push_back(
        {"--processes", {std::to_string(machines.num_gpus())}});
  }
  if (!is_here) {
    // A tensor's bytes on a card differ from its bytes on a CPU, but not
    // between cards, so any card serves for the plan.
    std::erase_if(line.run_flags, [](const configs::FlagUse& use) {
      return use.spelling == "--device";
    });
    line.run_flags.push_back({"--device", {"0"}});
  }
  if (!is_given(line, "--memory-limit")) {
    line.run_flags.push_back(
        {"--memory-limit", {cat(machines.budget_bytes, "B")}});
  }
  // Fix the number of threads, so that the plan does not depend on this
  // machine's cores.
  if (!is_given(line, "--threads")) {
    line.run_flags.push_back({"--threads", {"1"}});
  }
  return line;
}

void check_layout(const PlanMachines& machines,
                  const configs::RunConfig& config) {
  if (!config.layout || (!machines.instance && machines.cards.empty())) return;
  const int wanted = config.layout->world_size();
  const auto there = static_cast<int>(machines.num_gpus());
  if (wanted == there) return;
  std::string remedy;
  if (!machines.instance) {
    remedy = "name " + counted(wanted, "card") + " with --device";
  } else if (const int64_t each = gpus_counted_each(machines);
             wanted % each == 0) {
    remedy = cat("use ", machines.flag, " \"", machines.instance->name, ":",
                 wanted / each, "\"");
  }
  throw Error(
      "plan",
      "--layout " + plan::short_text(*config.layout) + " is of " +
          counted(wanted, "process") + ", but " + machines.flag + " has " +
          counted(there, "GPU"),
      cat(remedy, remedy.empty() ? "use" : ", or", " a layout of ", there));
}

void bound_remedies(planner::RemedyScope& remedies,
                    const PlanMachines& machines,
                    const configs::RunConfig& config) {
  remedies.processes_flag.clear();
  remedies.limit_flag.clear();
  if (const auto& instance = machines.instance) {
    remedies.processes_flag = machines.flag;
    remedies.processes_prefix = instance->name + ":";
    std::ranges::replace(remedies.processes_prefix, ' ', '-');
    remedies.processes_each = static_cast<int>(gpus_counted_each(machines));
    if (machines.is_card()) remedies.most_processes = kMostCards;
  } else if (machines.cards.empty()) {
    remedies.processes_flag = "--processes";
    remedies.limit_flag = "--gpu-memory";
    remedies.limit_of = [bytes =
                             data_parallel_bytes(machines)](int64_t mebibytes) {
      return predict::tensor_budget(mebibytes << 20, bytes);
    };
  }
  if (has_forecast(machines)) {
    remedies.seconds_of =
        [machines](const configs::RunConfig& changed, const plan::Plan& plan,
                   const std::vector<layers::LayerCost>& layers) {
          return seconds_on(machines, changed, plan, layers);
        };
  }
  remedies.admits =
      [machines, cfg = config.cfg, own_layers = planner::model_layers(config)](
          const configs::RunConfig& changed, const plan::Plan& plan) {
        const auto layers =
            changed.cfg == cfg ? own_layers : planner::model_layers(changed);
        PlanMachines there = machines;
        if (changed.memory_limit > machines.budget_bytes) {
          // A remedy with a larger limit assumes a GPU with more memory.
          there.gpu_memory_bytes =
              divided_up(changed.memory_limit + predict::kGpuContextBytes +
                             data_parallel_bytes(machines),
                         100 - predict::kGpuMarginPercent) *
              100;
        }
        if (there.is_card()) there.instance->gpus = plan.layout.world_size();
        // NCCL needs more memory for more processes, and tensors get less.
        const int64_t budget = predict::tensor_budget(
            there.gpu_memory_bytes,
            data_parallel_bytes(there, plan.layout.world_size()));
        return planner::fullest_rank_bytes(plan) <= budget &&
               segments_fit(changed, layers, plan, there.segment_room(plan));
      };
}

std::string machines_text(const PlanMachines& machines) {
  std::string text = "machines     ";
  if (const auto& instance = machines.instance) {
    if (machines.flag == "--cluster") {
      text += cat(machines.nodes, " x ", instance->provider, " ",
                  instance->name, ": ");
    }
    text += cat(machines.num_gpus(), " x ", instance->gpu);
    if (!instance->link.empty()) text += ", " + instance->link;
    if (instance->link_gigabytes_per_second > 0) {
      text += cat(" ", instance->link_gigabytes_per_second, " GB/s");
    }
    if (instance->network_gigabits_per_second > 0) {
      text +=
          cat(", network ", instance->network_gigabits_per_second, " Gbit/s");
    }
  } else if (!machines.cards.empty()) {
    for (const nvml::Card& card : machines.cards) {
      if (&card != machines.cards.data()) text += "\n             ";
      text += nvml::card_text(card, nvml::bytes_of_others(card, {}, 0));
    }
  } else {
    text += "GPUs of " + format_bytes(machines.gpu_memory_bytes);
  }
  const int64_t communication = data_parallel_bytes(machines);
  text +=
      cat("\nbudget       ", format_bytes(machines.budget_bytes), " of ",
          format_bytes(machines.gpu_memory_bytes), " for tensors: less ",
          format_bytes(predict::kGpuContextBytes), " of CUDA context and ",
          predict::kGpuMarginPercent, " % that the prediction may be wrong by",
          communication > 0 ? ", " + format_bytes(communication) + " for NCCL\n"
                            : "\n");
  return text;
}

}  // namespace headroom::cli
