#include "configs/recipe.h"

#include <algorithm>
#include <cmath>

#include "configs/data_config.h"
#include "configs/options.h"
#include "configs/yaml/scalar.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"

namespace headroom::configs {
namespace {

struct RecipeValue {
  const char* key;
  const char* value;
};

constexpr RecipeValue kOfUltralytics[] = {
    {"optimizer", "auto"},   {"short_warmup", "true"},
    {"lr_of_epoch", "true"}, {"carry_accumulation", "true"},
    {"close_mosaic", "10"},  {"hyp.add_hue", "1"},
    {"best_metric", "mAP"},  {"nms_iou_threshold", "0.7"},
};

// Rates that optimizer auto chooses unless they are given. A run's own file has
// those that were chosen, which another recipe must not take over.
constexpr const char* kRates[] = {"hyp.lr0", "hyp.momentum",
                                  "hyp.warmup_bias_lr"};

// An update is made from at least this many images.
constexpr int64_t kNominalBatch = 64;
constexpr int64_t kMostIterationsOfAdam = 10'000;

// "hyp.obj and hyp.anchor_t", of the keys that differ from their defaults.
std::string changed_keys(const RunConfig& config,
                         const std::vector<std::string>& keys) {
  const RunConfig fresh;
  std::vector<std::string> changed;
  for (const std::string& key : keys) {
    const Option& option = *find_key(key);
    if (value_text(config, option) != value_text(fresh, option)) {
      changed.push_back(shown_name(option));
    }
  }
  return joined(changed, ", ");
}

}  // namespace

void apply_recipe(RunConfig& config, const std::string& recipe) {
  if (recipe != kYolov5Recipe && recipe != kUltralyticsRecipe) return;
  config.recipe = recipe;
  for (const RecipeValue& one : kOfUltralytics) {
    const Option& option = *find_key(one.key);
    set_from_text(
        config, option,
        recipe == kUltralyticsRecipe ? one.value : default_text(option));
  }
  for (const char* key : kRates) {
    const Option& option = *find_key(key);
    set_from_text(config, option, default_text(option));
  }
}

std::string settle_optimizer(RunConfig& config, int64_t images,
                             int64_t classes) {
  if (config.optimizer != OptimizerKind::kAuto) return "";
  const int64_t batch = std::max(config.global_batch_size, kNominalBatch);
  const int64_t iterations = (images + batch - 1) / batch * config.epochs;
  const bool is_short = iterations <= kMostIterationsOfAdam;
  config.optimizer = is_short ? OptimizerKind::kAdamW : OptimizerKind::kSgd;
  const double lr =
      is_short ? std::nearbyint(0.002 * 5 / (4 + static_cast<double>(classes)) *
                                1e6) /
                     1e6
               : 0.01;
  const Hyperparameters fresh;
  std::string kept;
  const auto choose = [&](double Hyperparameters::*key, double value,
                          const char* name) {
    double& now = config.hyp.*key;
    if (now == fresh.*key) {
      now = value;
    } else {
      kept += (kept.empty() ? "" : ", ") + std::string(name);
    }
  };
  choose(&Hyperparameters::lr0, lr, "hyp.lr0");
  choose(&Hyperparameters::momentum, 0.9, "hyp.momentum");
  choose(&Hyperparameters::warmup_bias_lr, 0, "hyp.warmup_bias_lr");
  return cat(
      "optimizer: ", to_string(config.optimizer), ", lr0 ",
      yaml::exact_text(config.hyp.lr0), ", momentum ",
      yaml::exact_text(config.hyp.momentum),
      " (auto: ", counted(iterations, "iteration"), " of at least ",
      kNominalBatch, " images, ", is_short ? "at most " : "more than ",
      kMostIterationsOfAdam,
      is_short ? cat("; ", counted(classes, "class"))
               : std::string("; ultralytics would take MuSGD, which is not in "
                             "this version"),
      kept.empty() ? std::string() : "; " + kept + " as given", ")");
}

int64_t num_classes_of(const RunConfig& config) {
  if (config.single_cls) return 1;
  if (config.synthetic_input) return kSyntheticClasses;
  return std::ssize(load_data_config(config.data).names);
}

std::vector<std::string> check_head_settings(const RunConfig& config,
                                             bool has_anchors) {
  std::vector<std::string> lines;
  if (has_anchors) {
    const std::string unused = changed_keys(
        config, {"hyp.anchor_free_box", "hyp.anchor_free_cls", "hyp.dfl"});
    const std::string gains =
        "the gains are hyp.box, hyp.obj and hyp.cls, because the model has "
        "anchors";
    if (!unused.empty()) lines.push_back(unused + " has no effect: " + gains);
    if (unused.empty() && config.recipe == kUltralyticsRecipe) {
      lines.push_back("recipe ultralytics: " + gains);
    }
    return lines;
  }
  if (!config.teacher.empty()) {
    throw Error("config",
                "--teacher is for models with anchors, and this one has none",
                "leave it out, or train a model with anchors, for example "
                "--cfg yolov5s");
  }
  const std::string refused =
      changed_keys(config, {"label_smoothing", "hyp.fl_gamma", "hyp.cls_pw",
                            "hyp.anchors", "anchors"});
  if (!refused.empty()) {
    throw Error("config",
                refused +
                    " is for models with anchors, and this one has none: its "
                    "loss weighs classes by how well boxes fit",
                "leave it out, or train a model with anchors, for example "
                "--cfg yolov5s");
  }
  const std::string unused =
      changed_keys(config, {"hyp.box", "hyp.cls", "hyp.obj", "hyp.obj_pw",
                            "hyp.anchor_t", "noautoanchor"});
  if (!unused.empty()) {
    lines.push_back(unused +
                    " has no effect: the model has no anchors, and the gains "
                    "of its loss are hyp.anchor_free_box, hyp.anchor_free_cls "
                    "and hyp.dfl");
  }
  return lines;
}

}  // namespace headroom::configs
