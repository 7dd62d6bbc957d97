#include "configs/class_weights.h"

#include <algorithm>
#include <numeric>
#include <sstream>

#include "configs/yaml/scalar.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::configs {
namespace {

Error refusal(const RunConfig& config, const std::string& what,
              const std::string& remedy) {
  return Error("config", "hyp.cls_pw is '" + config.hyp.cls_pw + "', " + what,
               remedy);
}

}  // namespace

ClassWeights class_weights_of_run(const RunConfig& config) {
  ClassWeights result;
  if (config.hyp.cls_pw == "balanced") return {.is_balanced = true};
  // std::getline() leaves out an empty part at the end.
  std::istringstream parts(config.hyp.cls_pw.ends_with(',')
                               ? config.hyp.cls_pw + ","
                               : config.hyp.cls_pw);
  for (std::string part; std::getline(parts, part, ',');) {
    const size_t equals = part.rfind('=');
    const bool is_named = equals != std::string::npos;
    const auto weight =
        yaml::parse_double(is_named ? part.substr(equals + 1) : part);
    if (!weight || *weight < 0 || (is_named && equals == 0)) {
      throw refusal(config,
                    "but must be a weight of at least 0, a list of them, some "
                    "by class name, or balanced",
                    "write it as 1, as 1,2,0.5, as cat=2,dog=0.5 or as "
                    "balanced");
    }
    const std::string name = is_named ? part.substr(0, equals) : "";
    if (is_named && std::ranges::count(result.names, name) > 0) {
      throw refusal(config, "and has the class '" + name + "' twice",
                    "name each class once");
    }
    result.names.push_back(name);
    result.weights.push_back(*weight);
  }
  const auto unnamed = std::ranges::count(result.names, "");
  if (result.weights.empty() ||
      (unnamed > 0 && unnamed < std::ssize(result.names))) {
    throw refusal(config, "and has weights with and without a name, or none",
                  "name a class for each weight, or for none");
  }
  return result;
}

std::vector<double> weights_by_class(
    const RunConfig& config, const std::vector<std::string>& class_names,
    std::span<const int64_t> labels) {
  const ClassWeights given = class_weights_of_run(config);
  std::vector<double> weights(class_names.size(), 1);
  if (given.is_balanced) {
    const auto all = std::accumulate(labels.begin(), labels.end(), int64_t{0});
    const auto present = std::ssize(labels) - std::ranges::count(labels, 0);
    for (size_t c = 0; c < weights.size(); ++c) {
      if (labels[c] == 0) continue;
      weights[c] =
          static_cast<double>(all) / static_cast<double>(present * labels[c]);
    }
    return weights;
  }
  if (!given.names.front().empty()) {
    for (size_t i = 0; i < given.names.size(); ++i) {
      const auto named = std::ranges::find(class_names, given.names[i]);
      if (named == class_names.end()) {
        throw refusal(
            config, "but the data set has no class '" + given.names[i] + "'",
            yaml::suggestion(given.names[i], class_names,
                             "its classes are " + joined(class_names, ", ")));
      }
      weights[static_cast<size_t>(named - class_names.begin())] =
          given.weights[i];
    }
    return weights;
  }
  if (given.weights.size() == 1) {
    std::ranges::fill(weights, given.weights.front());
    return weights;
  }
  if (given.weights.size() != class_names.size()) {
    throw refusal(config,
                  cat("which is ", given.weights.size(),
                      " weights, but the data set has ",
                      counted(std::ssize(class_names), "class")),
                  "give one for each class, in the order of names");
  }
  return given.weights;
}

}  // namespace headroom::configs
