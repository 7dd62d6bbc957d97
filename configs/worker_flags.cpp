#include "configs/worker_flags.h"

#include <type_traits>

#include "configs/yaml/scalar.h"

namespace headroom::configs {
namespace {

bool is_set(const WorkerFlag& flag) {
  const auto* const value = std::get_if<bool*>(&flag.value);
  return value != nullptr && **value;
}

// A value that the program would take anyway need not be said.
bool has_to_be_said(const WorkerFlag& flag, const WorkerFlag& unset) {
  return flag.is_required || is_set(flag) ||
         value_text(flag) != value_text(unset);
}

template <typename Request>
void append_words(Request request, std::vector<std::string>& words) {
  Request nothing;
  const std::vector<WorkerFlag> unset = flags_of(nothing);
  const std::vector<WorkerFlag> flags = flags_of(request);
  for (size_t i = 0; i < flags.size(); ++i) {
    const WorkerFlag& flag = flags[i];
    if (!has_to_be_said(flag, unset[i])) continue;
    if (!flag.spelling.empty()) words.push_back(flag.spelling);
    if (!flag.value_name.empty()) words.push_back(value_text(flag));
  }
}

}  // namespace

std::vector<WorkerFlag> flags_of(WorkerStart& start) {
  return {
      {"--coordinator", "HOST:PORT", "The coordinator listens at this address.",
       &start.coordinator, true},
      {"--node-id", "ID", "The worker's agent has this name.", &start.node_id,
       true},
      {"--worker-id", "ID", "The worker has this name.", &start.worker_id,
       true},
      {"--advertise-host", "HOST", "Other workers reach this one at this host.",
       &start.advertise_host, true},
      {"--threads", "N", "The worker computes with this many threads.",
       &start.threads},
      {"--certs", "DIR", "This folder holds the certificates.", &start.certs},
      {"--token-file", "FILE", "This file holds the join token.",
       &start.token_file},
      {"--insecure-network", "", "Unprotected traffic may leave the machine.",
       &start.insecure_network},
      {"--card", "N",
       "The worker computes on this card. By default it follows from the local "
       "rank.",
       &start.card},
      {"--card-uuid", "UUID",
       "The card must have this UUID: the agent found it so.",
       &start.card_uuid},
  };
}

std::vector<WorkerFlag> flags_of(DatasetQuery& query) {
  AnchorQuery& anchors = query.anchors;
  return {
      {"", "DATA.YAML", "This describes the data set.", &query.data, true},
      {"--single-cls", "", "All classes count as one.", &query.single_cls},
      {"--threads", "N", "This many threads read files and search.",
       &query.threads},
      {"--label-counts", "", "The answer says how many boxes the images have.",
       &query.label_counts},
      {"--value-range", "",
       "The answer has the percentiles that range asks for.",
       &query.value_range},
      {"--noindex", "", "Every file is opened, and nothing of it is kept.",
       &query.noindex},
      {"--anchors-for", "MODEL",
       "The answer says which anchors this model gets.", &anchors.model},
      {"--weights", "FILE", "The anchors of these weights are judged.",
       &anchors.weights},
      {"--height", "PIXELS", "The network's input has this height.",
       &anchors.image_height},
      {"--width", "PIXELS", "The network's input has this width.",
       &anchors.image_width},
      {"--random-crop", "", "Larger images are cut.", &anchors.random_crop},
      {"--anchor-t", "X", "This is hyp.anchor_t.", &anchors.threshold},
      {"--anchors", "N", "This is hyp.anchors.", &anchors.per_level},
      {"--keep", "", "The model's anchors are kept unjudged.", &anchors.keep},
      {"--seed", "N", "The search has this seed.", &anchors.seed},
  };
}

std::vector<WorkerFlag> flags_of(StandaloneRequest& request) {
  return {
      {"", "RUN.YAML", "This file describes the run.", &request.run_yaml, true},
      {"--plan", "PLAN.JSON",
       "This is the plan. The default is the one beside RUN.YAML; if there "
       "is none, the worker chooses one.",
       &request.plan_json},
      {"--run-directory", "DIR",
       "The results of a new run go into this folder.", &request.run_directory},
      {"--resume", "",
       "The worker goes on with the run whose folder RUN.YAML lies in.",
       &request.resume, false, "--run-directory"},
  };
}

std::vector<std::string> words_of(const WorkerStart& start) {
  std::vector<std::string> words;
  append_words(start, words);
  return words;
}

std::vector<std::string> words_of(const DatasetQuery& query) {
  std::vector<std::string> words = {kAnswerCommand};
  append_words(query, words);
  return words;
}

std::string value_text(const WorkerFlag& flag) {
  return std::visit(
      [](const auto* value) -> std::string {
        using Value = std::remove_cvref_t<decltype(*value)>;
        if constexpr (std::is_same_v<Value, bool>) {
          return "";
        } else if constexpr (std::is_same_v<Value, double>) {
          return yaml::exact_text(*value);
        } else if constexpr (std::is_integral_v<Value>) {
          return std::to_string(*value);
        } else if constexpr (std::is_same_v<Value, std::string>) {
          return *value;
        } else {
          return value->string();
        }
      },
      flag.value);
}

}  // namespace headroom::configs
