#include "deploy/cli/plan/plan_answer.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <utility>
#include <vector>

#include "configs/arguments.h"
#include "deploy/cli/remedy_scope.h"
#include "deploy/cli/show/text_table.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/base/utf8.h"
#include "parallel/planner/plan_memory.h"

namespace headroom::cli {
namespace {

constexpr int64_t kBarWidth = 40;

// The flags that only plan takes, for example --gpu-memory.
std::vector<std::string> spellings_of_plan_alone() {
  std::vector<std::string> spellings;
  for (const configs::Option& option : configs::command_options()) {
    if (!belongs_to(option, "plan") || belongs_to(option, "train")) continue;
    spellings.insert(spellings.end(), option.names.begin(), option.names.end());
  }
  return spellings;
}

size_t fullest_stage(const PlanReport& report) {
  const auto fullest = std::max_element(
      report.memory.begin(), report.memory.end(),
      [](const predict::MemoryEstimate& a, const predict::MemoryEstimate& b) {
        return a.total() < b.total();
      });
  return static_cast<size_t>(fullest - report.memory.begin());
}

// One bar per kind of memory, and one for the unused rest of the limit.
std::string chart(const predict::MemoryEstimate& memory, int64_t limit) {
  const auto [state, rest] = memory_parts(memory);
  std::vector<std::pair<std::string, int64_t>> parts = {
      {"weights, gradients, optimizer", state},
      {"images", memory.images},
      {"kept for the backward pass", memory.activations},
      {"scratch", memory.transient},
      {"messages", memory.communication},
      {"other", rest}};
  if (limit > 0) parts.emplace_back("free", limit - memory.total());
  const int64_t whole = std::max(limit, memory.total());
  std::vector<std::vector<std::string>> lines;
  for (const auto& [name, bytes] : parts) {
    if (bytes <= 0) continue;
    const int64_t length =
        divided_up(bytes * kBarWidth, std::max<int64_t>(whole, 1));
    lines.push_back(
        {name, format_bytes(bytes),
         std::string(static_cast<size_t>(length), name == "free" ? '.' : '#')});
  }
  return text_table(lines);
}

std::string fullest_process(const PlanReport& report) {
  const int processes = report.plan.layout.world_size();
  return processes == 1 ? "the process"
                        : cat("the fullest of ", processes, " processes");
}

// "1.03 of 2 GiB": the needed bytes rounded up, and the limit rounded down,
// with at least two decimals and so many that the two texts differ. With
// `with_spare`: "1.03 of 2 GiB, 0.97 GiB to spare".
std::string part_of_limit(int64_t needed, int64_t limit, bool with_spare) {
  constexpr const char* kFills = ", as a plan keeps what fits";
  constexpr int64_t kGiB = int64_t{1} << 30;
  const bool is_large = limit >= kGiB;
  const double unit = is_large ? kGiB : kGiB >> 10;
  const std::string name = is_large ? " GiB" : " MiB";
  double up = 0, down = 0;
  for (int decimals = 2; decimals <= 5; ++decimals) {
    const double scale = std::pow(10, decimals);
    up = std::ceil(static_cast<double>(needed) / unit * scale) / scale;
    down = std::floor(static_cast<double>(limit) / unit * scale) / scale;
    if (up < down || needed >= limit) break;
  }
  const std::string text =
      significant_text(up, 6) + " of " + significant_text(down, 6) + name;
  if (!with_spare) return text;
  return text + ", " +
         (down - up < 0.1 ? format_bytes(limit - needed)
                          : significant_text(down - up, 5) + name) +
         " to spare" + (50 * (limit - needed) < limit ? kFills : "");
}

// " (NVIDIA T4, 15 GiB)", or "" without a GPU.
std::string gpu_text(const std::optional<PlanMachines>& machines) {
  if (!machines) return "";
  return " (" +
         (machines->instance ? machines->instance->gpu + ", "
                             : std::string("a GPU of ")) +
         format_bytes(machines->gpu_memory_bytes) + ")";
}

// The peaks of the two phases that a run repeats.
std::string peaks_text(const PlanReport& report) {
  int64_t training = 0, validation = 0;
  for (const plan::PhaseBytes& phases : report.plan.predicted_phase_bytes) {
    training = std::max(training, phases.training);
    validation = std::max(validation, phases.validation);
  }
  return "training " + format_bytes(training) +
         ", of which below; validation " + format_bytes(validation);
}

// The bytes of a plan for cards that cannot be used, and other cards to rent.
std::string unusable_memory(const PlanReport& report, bool needs_arm) {
  const int64_t needed = planner::fullest_rank_bytes(report.plan);
  return part_of_limit(needed, report.config.memory_limit,
                       /*with_spare=*/false) +
         " in " + fullest_process(report) + "; take a card " +
         (needs_arm ? "in an x86-64 machine"
                    : "of compute capability 7.5 or above, for example of AWS "
                      "g4dn, g5 or p4d");
}

// Explains technical terms that appear in the plan's reason.
std::string glossary(const std::string& reason, size_t columns) {
  const std::vector<std::pair<std::string, std::string>> words = {
      {"micro-batch", "micro-batch: images that go through at once"},
      {"batch-norm group", "batch-norm group: images normalised together"},
      {"lean", "lean: convolutions' outputs are kept, the rest is derived"},
      {"recompute", "recompute: forward runs again in the backward pass"},
      {"offload", "offload: what backward needs lies in host memory"}};
  std::string text;
  for (const auto& [word, meaning] : words) {
    if (reason.find(word) == std::string::npos) continue;
    text += (text.empty() ? "" : "; ") + meaning;
  }
  return text.empty() ? "" : labelled("where", text, columns);
}

}  // namespace

std::string train_command(const CommandLine& plan,
                          const std::optional<PlanMachines>& machines,
                          bool knows_data) {
  CommandLine train = plan;
  train.command = "train";
  for (const std::string& spelling : spellings_of_plan_alone()) {
    remove_flag(train.words, spelling);
  }
  if (!knows_data) {
    train.words.insert(train.words.begin(), {"--data", "DATA.YAML"});
  }
  const bool is_many = machines && machines->instance;
  if (!is_many) return command_text(train);
  remove_flag(train.words, "--processes");
  train.words.insert(
      train.words.end(),
      {"--processes", std::to_string(machines->num_gpus() / machines->nodes)});
  return (machines->nodes == 1
              ? ""
              : cat("mpirun -np ", machines->nodes, " --map-by node ")) +
         command_text(train);
}

std::string plan_verdict(const PlanReport& report,
                         const std::optional<PlanMachines>& machines) {
  const std::string reason = why_unusable(machines);
  if (!reason.empty()) return "cannot train: " + reason;
  const int64_t needed = planner::fullest_rank_bytes(report.plan);
  const int64_t limit = report.config.memory_limit;
  const std::string who = fullest_process(report);
  if (limit == 0) {
    return "needs " + format_bytes(needed) + " in " + who +
           "; no --memory-limit, --gpu-memory, --gpu or --cluster says what "
           "there is";
  }
  const bool is_one = report.plan.layout.world_size() == 1;
  return "fits: " + part_of_limit(needed, limit, /*with_spare=*/true) +
         (is_one ? "" : " in " + who) + gpu_text(machines);
}

std::string labelled(const std::string& label, const std::string& text,
                     size_t columns) {
  constexpr size_t kIndent = 13;
  return configs::wrapped(text, columns, kIndent)
      .replace(0, kIndent, padded(label, kIndent));
}

std::string plan_answer_text(const PlanReport& report,
                             const std::optional<PlanMachines>& machines,
                             const std::string& command, size_t columns) {
  const predict::MemoryEstimate& memory = report.memory[fullest_stage(report)];
  const bool is_usable = why_unusable(machines).empty();
  return plan_verdict(report, machines) + "\n" +
         (is_usable
              ? ""
              : labelled("memory",
                         unusable_memory(report, machines->instance->needs_arm),
                         columns)) +
         (is_usable && report.forecast
              ? labelled("forecast", forecast_verdict(*report.forecast),
                         columns)
              : "") +
         (is_usable && report.run
              ? labelled("whole run", run_sentence(*report.run), columns)
              : "") +
         (is_usable ? "train it     " + command + "\n" : "") +
         (machines && !machines->note.empty()
              ? labelled("card", machines->note, columns)
              : "") +
         "\n" + labelled("peaks", peaks_text(report), columns) +
         chart(memory, report.config.memory_limit) + "\n" +
         labelled("plan", report.plan.reason, columns) +
         glossary(report.plan.reason, columns) + groups_note(report);
}

}  // namespace headroom::cli
