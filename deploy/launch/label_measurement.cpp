#include "deploy/launch/label_measurement.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "deploy/launch/worker_question.h"
#include "parallel/base/check.h"
#include "parallel/plan/label_bound.h"

namespace headroom {
namespace {

std::string counts_in(const std::string& line) {
  const auto json = nlohmann::json::parse(line, nullptr, false);
  const auto counts =
      json.is_object() ? json.value("label_counts", std::string()) : "";
  const auto statistics = parse_label_statistics(counts);
  if (!statistics || !statistics->is_known()) {
    throw Error("labels", "the worker that reads labels said '" + line + "'",
                "build headroom and headroom-worker together",
                ExitCode::kResource);
  }
  return counts;
}

}  // namespace

std::string measure_labels(const RunConfig& config) {
  WorkerQuestion question;
  question.name = "label reader";
  question.words = {
      "label-statistics", config.data, "--threads",
      std::to_string(std::max<int64_t>(1, config.loader_threads))};
  if (config.single_cls) question.words.push_back("--single-cls");
  question.doing = "labels were read";
  question.remedy = "leave --data out to plan without labels";
  return counts_in(ask_worker(question));
}

}  // namespace headroom
