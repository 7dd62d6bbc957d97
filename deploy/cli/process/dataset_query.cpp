#include "deploy/cli/process/dataset_query.h"

#include <algorithm>
#include <chrono>
#include <mutex>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "configs/range_wish.h"
#include "configs/recipe.h"
#include "configs/worker_start.h"
#include "coordinator/run/run_ending.h"
#include "deploy/cli/process/agent.h"
#include "deploy/cli/process/child_output.h"
#include "deploy/cli/process/child_process.h"
#include "deploy/cli/process/file_descriptor.h"
#include "deploy/cli/process/interrupts.h"
#include "parallel/base/check.h"
#include "parallel/base/log.h"
#include "parallel/planner/model_layers.h"
#include "parallel/predict/label_bound.h"

namespace headroom::cli {
namespace {

// Weights without --cfg contain their own anchors.
bool brings_anchors(const configs::RunConfig& config) {
  return config.cfg.empty() && !config.weights.empty();
}

// A child process that is restarted if it was killed, and that answers with one
// line of JSON on standard output.
struct DataReader {
  std::string run_yaml;           // the run whose data set is read
  std::vector<std::string> keys;  // the keys that the answer sets
  std::string doing;              // for the message about an interrupt
  std::string remedy;             // advice if the child fails silently
};

nlohmann::json ask(const DataReader& reader, int starts_left = 3) {
  constexpr auto kTick = std::chrono::milliseconds(50);
  const interrupts::Watch watch;
  std::mutex mutex;
  std::string answer;
  ChildOptions options;
  options.name = "dataset query";
  options.may_refuse = true;
  const auto run_yaml = memory_file(reader.run_yaml);
  options.passed_fds = {run_yaml->get()};
  options.command = {find_worker_program().string(), configs::kAnswerCommand,
                     std::to_string(run_yaml->get())};
  options.command.insert(options.command.end(), reader.keys.begin(),
                         reader.keys.end());
  options.on_line = [&](const ChildLine& line) {
    const std::lock_guard lock(mutex);
    if (line.record) {
      log::pass_on(*line.record);
    } else if (line.text.starts_with('{')) {
      answer = line.text;
    }
  };
  ChildProcess child(std::move(options));
  while (!child.wait(kTick)) {
    if (interrupts::count() == 0) continue;
    throw Error("labels", "interrupted while " + reader.doing, "start it again",
                ExitCode::kInterrupted);
  }
  const int exit_code = *child.exit_code();
  if (child.was_killed() && starts_left > 1) {
    log::warn("the worker that reads labels " +
              coordinator::describe_exit(exit_code) + ": it is started again");
    return ask(reader, starts_left - 1);
  }
  const std::lock_guard lock(mutex);
  const auto json = nlohmann::json::parse(answer, nullptr, false);
  if (exit_code == 0 && json.is_object()) return json;
  if (const auto& refusal = child.refusal()) {
    throw Error(refusal->tag, refusal->text, refusal->remedy,
                static_cast<ExitCode>(exit_code));
  }
  if (exit_code == 0) {
    throw Error("labels", "the worker that reads labels said '" + answer + "'",
                "build headroom and headroom-worker together",
                ExitCode::kResource);
  }
  const std::string words = child.telling_line();
  throw Error("labels",
              "the worker that reads labels " +
                  coordinator::describe_exit(exit_code) +
                  (words.empty() ? "" : "; its last words: " + words),
              reader.remedy, ExitCode::kResource);
}

// Copies the wanted facts from the answer; returns false if a fact is missing.
bool take_answer(const nlohmann::json& answer, WantedFacts wanted,
                 configs::RunConfig& config) {
  const auto text = [&](const char* key) {
    return answer.value(key, std::string());
  };
  if (wanted.label_counts) {
    config.label_counts = text("label_counts");
    if (config.label_counts.empty()) return false;
  }
  if (wanted.value_range) {
    config.value_range = text("value_range");
    if (config.value_range.empty()) return false;
  }
  if (wanted.anchors) {
    config.anchors = text("anchors");
    config.anchors_reason = text("anchors_reason");
    if (config.anchors_reason.empty()) return false;
  }
  return true;
}

}  // namespace

void ask_data(configs::RunConfig& config, WantedFacts wanted) {
  configs::RunConfig asked = config;
  if (!brings_anchors(config)) asked.cfg = planner::model_of_run(config);
  DataReader reader;
  reader.run_yaml = configs::to_yaml(asked);
  if (wanted.label_counts) {
    reader.keys.push_back("label_counts");
    reader.doing = "labels were read";
    reader.remedy = "leave --data out to plan without labels";
  }
  if (wanted.value_range) {
    reader.keys.push_back("value_range");
    reader.doing = "the range of values was measured";
    reader.remedy = "write the values into data.yaml: range: [low, high]";
  }
  if (wanted.anchors) {
    reader.keys.push_back("anchors");
    reader.doing = "anchors were judged";
    reader.remedy = "train with the model's: --noautoanchor";
  }
  const nlohmann::json answer = ask(reader);
  if (!take_answer(answer, wanted, config)) {
    throw Error(
        "labels", "the worker that reads labels said '" + answer.dump() + "'",
        "build headroom and headroom-worker together", ExitCode::kResource);
  }
}

void forget_found_anchors(configs::RunConfig& config) {
  if (config.anchors_reason.empty()) return;
  config.anchors.clear();
  config.anchors_reason.clear();
}

bool take_value_range(configs::RunConfig& config) {
  // Keep a range that the user gave, or that was measured at planning.
  if (config.command != "train" || !config.resume.empty() ||
      config.synthetic_input || !config.value_range.empty()) {
    return false;
  }
  const auto wish = configs::read_range_wish(config.data);
  if (!wish || wish->is_measured()) return wish.has_value();
  config.value_range = to_text(wish->ranges);
  return false;
}

bool counts_for_optimizer(const configs::RunConfig& config) {
  return config.command == "train" &&
         config.optimizer == configs::OptimizerKind::kAuto &&
         config.label_counts.empty() && !config.synthetic_input &&
         !config.data.empty();
}

void take_optimizer(configs::RunConfig& config,
                    std::vector<std::string>& notes) {
  const auto statistics = predict::parse_label_statistics(config.label_counts);
  const bool is_known = statistics && statistics->is_known();
  if (config.optimizer != configs::OptimizerKind::kAuto ||
      (!is_known && !config.synthetic_input)) {
    return;
  }
  const int64_t images =
      is_known ? statistics->num_images()
               : configs::kSyntheticStepsPerEpoch * config.global_batch_size;
  notes.push_back(configs::settle_optimizer(config, images,
                                            configs::num_classes_of(config)));
}

bool wants_anchors(const configs::RunConfig& config) {
  return config.command == "train" && config.resume.empty() &&
         config.anchors.empty() && config.anchors_reason.empty() &&
         !config.synthetic_input && !config.data.empty() &&
         (!config.noautoanchor || brings_anchors(config));
}

bool has_judged_anchors(const configs::RunConfig& config) {
  return config.resume.empty() && !config.anchors_reason.empty();
}

}  // namespace headroom::cli
