#include "deploy/cli/process/dataset_query.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "configs/layers/anchor_list.h"
#include "configs/yaml/scalar.h"
#include "deploy/cli/process/worker_question.h"
#include "parallel/base/check.h"
#include "parallel/planner/model_layers.h"
#include "parallel/predict/label_bound.h"

namespace headroom::cli {
namespace {

// Weights without --cfg bring their own anchors.
bool brings_anchors(const configs::RunConfig& config) {
  return config.cfg.empty() && !config.weights.empty();
}

std::vector<std::string> words_for_anchors(const configs::RunConfig& config) {
  std::vector<std::string> words = {
      "--anchors-for", planner::model_of_run(config),
      "--height",      std::to_string(config.image_height),
      "--width",       std::to_string(config.image_width),
      "--anchor-t",    yaml::exact_text(config.hyp.anchor_t),
      "--anchors",     yaml::exact_text(config.hyp.anchors),
      "--seed",        std::to_string(config.seed)};
  if (brings_anchors(config)) {
    words.insert(words.end(), {"--weights", config.weights});
  }
  if (config.random_crop) words.push_back("--random-crop");
  if (config.noautoanchor) words.push_back("--keep");
  return words;
}

// Takes what was asked for out of the answer; false if it is not there.
bool take_answer(const std::string& line, DatasetQuery question,
                 configs::RunConfig& config) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  const auto text = [&](const char* key) {
    return json.is_object() ? json.value(key, std::string()) : std::string();
  };
  if (question.label_counts) {
    config.label_counts = text("label_counts");
    const auto counts = predict::parse_label_statistics(config.label_counts);
    if (!counts || !counts->is_known()) return false;
  }
  if (question.anchors) {
    config.anchors = text("anchors");
    config.anchors_reason = text("anchors_reason");
    if (config.anchors_reason.empty() ||
        !layers::parse_anchor_list(config.anchors)) {
      return false;
    }
  }
  return true;
}

}  // namespace

void ask_data(configs::RunConfig& config, DatasetQuery question) {
  WorkerQuestion child;
  child.name = "data question";
  child.words = {"answer", config.data, "--threads",
                 std::to_string(std::max<int64_t>(1, config.loader_threads))};
  if (config.single_cls) child.words.push_back("--single-cls");
  if (question.label_counts) {
    child.words.push_back("--label-counts");
    child.doing = "labels were read";
    child.remedy = "leave --data out to plan without labels";
  }
  if (question.anchors) {
    const std::vector<std::string> words = words_for_anchors(config);
    child.words.insert(child.words.end(), words.begin(), words.end());
    child.doing = "anchors were judged";
    child.remedy = "train with the model's: --noautoanchor";
  }
  const std::string line = ask_worker(child);
  if (!take_answer(line, question, config)) {
    throw Error("labels", "the worker that reads labels said '" + line + "'",
                "build headroom and headroom-worker together",
                ExitCode::kResource);
  }
}

void forget_found_anchors(configs::RunConfig& config) {
  if (config.anchors_reason.empty()) return;
  config.anchors.clear();
  config.anchors_reason.clear();
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
