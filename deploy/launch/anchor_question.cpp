#include "deploy/launch/anchor_question.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>

#include "configs/anchor_list.h"
#include "configs/scalar.h"
#include "coordinator/model_rows.h"
#include "deploy/launch/worker_question.h"
#include "parallel/base/check.h"

namespace headroom {
namespace {

// Weights without --cfg bring their own anchors.
bool brings_anchors(const RunConfig& config) {
  return config.cfg.empty() && !config.weights.empty();
}

}  // namespace

void forget_found_anchors(RunConfig& config) {
  if (config.anchors_reason.empty()) return;
  config.anchors.clear();
  config.anchors_reason.clear();
}

bool wants_anchors(const RunConfig& config) {
  return config.command == "train" && config.resume.empty() &&
         config.anchors.empty() && !config.synthetic_input &&
         !config.data.empty() &&
         (!config.noautoanchor || brings_anchors(config));
}

void settle_anchors(RunConfig& config) {
  WorkerQuestion question;
  question.name = "anchor search";
  question.words = {
      "find-anchors",
      config.data,
      "--model",
      model_of_run(config),
      "--height",
      std::to_string(config.image_height),
      "--width",
      std::to_string(config.image_width),
      "--anchor-t",
      exact_text(config.hyp.anchor_t),
      "--anchors",
      exact_text(config.hyp.anchors),
      "--seed",
      std::to_string(config.seed),
      "--threads",
      std::to_string(std::max<int64_t>(1, config.loader_threads))};
  if (brings_anchors(config)) {
    question.words.insert(question.words.end(), {"--weights", config.weights});
  }
  if (config.noautoanchor) question.words.push_back("--keep");
  if (config.single_cls) question.words.push_back("--single-cls");
  question.doing = "anchors were judged";
  question.remedy = "train with the model's: --noautoanchor";
  const std::string line = ask_worker(question);
  const auto json = nlohmann::json::parse(line, nullptr, false);
  if (!json.is_object() || !json.contains("anchors") ||
      !parse_anchor_list(json.value("anchors", std::string()))) {
    throw Error("labels", "the worker that judges anchors said '" + line + "'",
                "build headroom and headroom-worker together",
                ExitCode::kResource);
  }
  config.anchors = json.value("anchors", std::string());
  config.anchors_reason = json.value("anchors_reason", std::string());
}

}  // namespace headroom
