// --recipe: which training recipe a run follows where nothing else is given.
//
// A recipe is nothing but values of keys, all of which may be set on their own.
// yolov5, the default, is the default of every key. ultralytics is that
// package's (8.4) defaults as far as they differ. Its gains of the loss are not
// among them: a head without anchors has them under both recipes, and a head
// with anchors keeps YOLOv5's.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "configs/run_config.h"

namespace headroom::configs {

inline constexpr char kYolov5Recipe[] = "yolov5";
inline constexpr char kUltralyticsRecipe[] = "ultralytics";

// Sets the keys in which the recipes differ; an unknown name changes nothing.
void apply_recipe(RunConfig& config, const std::string& recipe);

// Replaces the optimizer kAuto, and where they have their defaults, lr0,
// momentum and warmup_bias_lr, by that package's rule for `images` training
// images of `classes` classes. Returns a line about it; "" if the optimizer was
// named. REQUIRES: a batch size; images > 0.
std::string settle_optimizer(RunConfig& config, int64_t images,
                             int64_t classes);

// The number of classes that a run on its data set has.
int64_t num_classes_of(const RunConfig& config);

// Lines about settings that do not hold for the head of the run's model. Throws
// Error (exit 2) for those of which a run without them would be another one
// than was asked for.
std::vector<std::string> check_head_settings(const RunConfig& config,
                                             bool has_anchors);

}  // namespace headroom::configs
