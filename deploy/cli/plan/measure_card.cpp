#include "deploy/cli/plan/measure_card.h"

#include <stdlib.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>
#include <sstream>
#include <vector>

#include "configs/worker_start.h"
#include "coordinator/run/run_ending.h"
#include "deploy/cli/process/agent.h"
#include "deploy/cli/process/child_process.h"
#include "deploy/cli/process/host.h"
#include "deploy/cli/process/interrupts.h"
#include "deploy/cli/process/node_cards.h"
#include "parallel/base/atomic_file.h"
#include "parallel/base/check.h"
#include "parallel/base/device_list.h"
#include "parallel/base/median.h"
#include "parallel/base/regular_file.h"
#include "parallel/base/run_files.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/planner/model_layers.h"
#include "parallel/planner/plan_time.h"
#include "parallel/planner/planner.h"

namespace headroom::cli {
namespace {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

constexpr int64_t kWarmUpSteps = 5;  // first steps, which do not count
constexpr int64_t kFewestSteps = kWarmUpSteps + 3;  // steps of a measurement
constexpr int64_t kMostSteps = kWarmUpSteps + 40;
constexpr const char* kInstead =
    "give --images-per-second N instead, which headroom train prints where "
    "there is such a card";

Error refusal(const std::string& what, const std::string& remedy) {
  return Error("command line", what, remedy);
}

std::string device_given(const CommandLine& line) {
  return configs::run_config_from_flags("train", line.run_flags).device;
}

// Removes itself.
class WorkFolder {
 public:
  WorkFolder() {
    std::string name =
        (fs::temp_directory_path() / "headroom-measure-XXXXXX").string();
    if (::mkdtemp(name.data()) == nullptr) {
      throw Error("measure", "cannot make a folder " + name,
                  "set TMPDIR to a folder that you may write into");
    }
    path_ = name;
  }
  ~WorkFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  WorkFolder(const WorkFolder&) = delete;
  WorkFolder& operator=(const WorkFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

// A training of the request's model with `images` images a step, on one card
// and without files.
configs::RunConfig measured_run(const configs::RunConfig& asked, int card,
                                int64_t images) {
  configs::RunConfig run;
  run.cfg = asked.cfg;
  run.weights = asked.weights;
  run.image_height = asked.image_height;
  run.image_width = asked.image_width;
  run.global_batch_size = images;
  run.optimizer = asked.optimizer == configs::OptimizerKind::kAuto
                      ? configs::OptimizerKind::kAdamW
                      : asked.optimizer;
  run.precision = asked.precision;
  run.tf32 = asked.tf32;
  run.cuda_graphs = asked.cuda_graphs;
  run.deterministic = asked.deterministic;
  run.threads = usable_cores();
  run.device = std::to_string(card);
  run.processes = 1;
  run.memory_limit = asked.memory_limit;
  run.synthetic_input = true;
  run.max_steps = kMostSteps;
  run.noval = run.nosave = run.noplots = true;
  return run;
}

// Whether the step fits without recomputation and smaller micro-batches, which
// would be measured too.
bool is_plain(const configs::RunConfig& run,
              const std::vector<layers::LayerCost>& layers) {
  if (run.memory_limit == 0) return true;
  const auto plan = planner::choose_plan(run, 1, layers).plan;
  return plan && plan->activation_policies.empty() &&
         plan->micro_batch_size == run.global_batch_size;
}

int64_t lines_in(const std::string& text) {
  return std::ranges::count(text, '\n');
}

// Trains until kMostSteps steps are done, or until `enough` if there are
// kFewestSteps, or until `end`. Returns the median step; nullopt if there are
// too few.
std::optional<double> train(const configs::RunConfig& run,
                            Clock::time_point enough, Clock::time_point end) {
  constexpr auto kTick = std::chrono::milliseconds(100);
  const interrupts::Watch watch;
  const WorkFolder folder;
  const fs::path results = folder.path() / "run";
  const fs::path yaml = folder.path() / run_files::kRun;
  write_whole_file(yaml, configs::to_yaml(run));
  ChildOptions options;
  options.name = "measuring worker";
  options.may_refuse = true;
  options.command = {find_worker_program().string(), configs::kStandaloneFlag,
                     yaml.string(), "--run-directory", results.string()};
  options.on_line = [](const ChildLine&) {};  // its progress is not shown
  ChildProcess child(std::move(options));
  std::string steps;
  while (true) {
    const bool has_ended = child.wait(kTick).has_value();
    steps = text_or_none(results / run_files::kSteps);
    const auto now = Clock::now();
    if (has_ended || lines_in(steps) >= kMostSteps || now >= end ||
        (now >= enough && lines_in(steps) >= kFewestSteps)) {
      break;
    }
    if (interrupts::count() > 0) {
      throw Error("measure", "interrupted while the card was measured",
                  "start it again", ExitCode::kInterrupted);
    }
  }
  const std::optional<int> exit_code = child.exit_code();
  if (!exit_code) child.terminate(std::chrono::milliseconds(0));
  const auto seconds = median_step(steps);
  if (seconds || !exit_code) return seconds;
  if (const auto& refused = child.refusal()) {
    throw Error(refused->tag, refused->text, refused->remedy,
                static_cast<ExitCode>(*exit_code));
  }
  const std::string words = child.telling_line();
  throw Error("measure",
              "the worker that measures the card " +
                  coordinator::describe_exit(*exit_code) +
                  (words.empty() ? "" : "; its last words: " + words),
              kInstead, ExitCode::kResource);
}

std::string model_name(const configs::RunConfig& config) {
  return fs::path(planner::model_of_run(config)).stem().string();
}

}  // namespace

wire::NodeCard card_to_measure(const CommandLine& line,
                               const nvml::Nvml& driver) {
  for (const char* flag : {"--prices", "--images-per-second", "--sweep"}) {
    if (!line.has(flag)) continue;
    throw refusal(std::string("--measure makes one plan, and ") + flag +
                      " was given, too",
                  std::string("leave ") + flag + " out");
  }
  for (const char* flag : {"--cluster", "--gpu", "--gpu-memory"}) {
    if (!line.has(flag)) continue;
    throw refusal(
        std::string("--measure is for a card of this machine, ") + flag +
            " is not",
        "leave one out: what was measured counts for later plans with such "
        "cards");
  }
  const std::string device = device_given(line);
  if (device == kCpuDevice) {
    throw refusal("--measure is for a card, and --device is cpu", kInstead);
  }
  const bool is_nvidia = std::getenv(kDevicePluginVariable) == nullptr;
  const std::vector<int> named = parse_device_list(device);
  const int index = named.empty() ? 0 : named.front();
  if (is_nvidia && !driver.cards().empty()) {
    constexpr int64_t kMuch = int64_t{1} << 30;
    const nvml::Card card =
        nvml::cards_asked_for(std::to_string(index), driver).front();
    const int64_t others = nvml::bytes_of_others(card, {}, 0);
    if (!card.processes.empty() || others >= kMuch) {
      throw refusal(
          "--measure needs a card alone, and " + nvml::card_text(card, others),
          "wait for them, name another card with --device N, or "
          "give --images-per-second N");
    }
  }
  const NodeCards here = find_node_cards();
  const auto found =
      std::ranges::find(here.cards, index, &wire::NodeCard::index);
  if (found == here.cards.end()) {
    throw refusal("--measure needs a card: " +
                      (here.cards.empty() ? here.no_card_reason
                                          : cat("there is no card ", index)),
                  kInstead);
  }
  if (!found->trouble.empty()) throw refusal(found->trouble, kInstead);
  return *found;
}

std::optional<double> median_step(const std::string& steps_jsonl) {
  std::istringstream lines(steps_jsonl);
  std::vector<double> seconds;
  int64_t number = 0;
  for (std::string line; std::getline(lines, line); ++number) {
    const auto step = nlohmann::json::parse(line, nullptr, false);
    // The last line may not be whole yet.
    if (!step.is_object() || !step.contains("seconds")) continue;
    if (number >= kWarmUpSteps)
      seconds.push_back(step["seconds"].get<double>());
  }
  if (std::ssize(seconds) < kFewestSteps - kWarmUpSteps) return std::nullopt;
  return median(std::move(seconds));
}

void fit_steps(const StepTime& larger, const std::optional<StepTime>& smaller,
               double layer_seconds, configs::CardMeasurement& measurement) {
  const auto images = static_cast<double>(larger.images);
  double each = larger.seconds / images;
  double beside = 0;
  if (smaller) {
    const double slope = (larger.seconds - smaller->seconds) /
                         static_cast<double>(larger.images - smaller->images);
    const double rest = larger.seconds - slope * images;
    if (slope > 0 && rest >= 0) {
      each = slope;
      beside = rest;
    }
  }
  measurement.images = larger.images;
  measurement.seconds = larger.seconds;
  measurement.time_scale = each / layer_seconds;
  measurement.seconds_beside_layers = beside;
}

configs::CardMeasurement measure_card(const RunRequest& request,
                                      const wire::NodeCard& card) {
  const configs::RunConfig& asked = request.config;
  const std::vector<layers::LayerCost> layers = planner::model_layers(asked);
  int64_t images =
      divided_up(asked.global_batch_size, int64_t{request.expected_workers()});
  configs::RunConfig run = measured_run(asked, card.index, images);
  while (images > 1 && !is_plain(run, layers)) {
    images = divided_up(images, int64_t{2});
    run.global_batch_size = images;
  }
  const auto begin = Clock::now();
  const auto after = [begin](int seconds) {
    return begin + std::chrono::seconds(seconds);
  };
  const auto seconds =
      train(run, after(kSecondsToMeasure / 2), after(kSecondsToMeasure));
  if (!seconds) {
    throw Error("measure",
                cat("the card has not done ", kFewestSteps, " steps of ",
                    images, " images within ", kSecondsToMeasure, " s"),
                "give a smaller --batch, or --images-per-second N",
                ExitCode::kResource);
  }
  const StepTime larger{images, *seconds};
  std::optional<StepTime> smaller;
  if (images > 1) {
    run.global_batch_size = images / 2;
    if (const auto half =
            train(run, after(kSecondsToMeasure), after(kSecondsToMeasure))) {
      smaller = StepTime{images / 2, *half};
    }
  }
  const planner::CardSpeed speed = planner::speed_of_card(card.name);
  configs::CardMeasurement measurement;
  measurement.card = speed.name;
  measurement.model = model_name(asked);
  for (const layers::LayerCost& layer : layers) {
    measurement.parameters += layer.parameters;
  }
  measurement.precision = asked.precision;
  measurement.tf32 = asked.tf32;
  measurement.cuda_graphs = asked.cuda_graphs;
  measurement.height = asked.image_height;
  measurement.width = asked.image_width;
  measurement.date = utc_now().substr(0, 10);
  measurement.uuid = card.uuid;
  measurement.driver = configs::driver_version();
  fit_steps(larger, smaller, planner::layer_seconds(run, layers, speed),
            measurement);
  return measurement;
}

std::string measured_text(const configs::CardMeasurement& measurement) {
  const double rate =
      static_cast<double>(measurement.images) / measurement.seconds;
  return cat(measurement.card, ": a step of ",
             counted(measurement.images, "image"), " takes ",
             significant_text(1e3 * measurement.seconds, 3), " ms, ",
             significant_text(rate, 4), " images/s");
}

}  // namespace headroom::cli
