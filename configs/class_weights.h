// hyp.cls_pw: the weight of each class's positives in the class term of the
// loss, p of
//
//   L(x, t) = (1 - t) softplus(x) + p t softplus(-x)
//
//   "2"          2 for every class
//   "1,2,0.5"    one for each class, in the order of names
//   "cat=2"      2 for cat, 1 for the others
//   "balanced"   n / (k n_c) for class c: n labels of the training images, n_c
//                of the class, k classes with labels; 1 for a class without.
//                The mean over labels is 1.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "configs/run_config.h"

namespace headroom::configs {

struct ClassWeights {
  bool is_balanced = false;
  // One entry for each given weight; names are empty in a list.
  std::vector<std::string> names = {};
  std::vector<double> weights = {};
};

// Reads hyp.cls_pw. Throws Error (exit 2) if it is none of the above.
ClassWeights class_weights_of_run(const RunConfig& config);

// The weight of each class. `labels`: the number of labels of each class.
// Throws Error (exit 2) for a name or a number of weights that does not fit
// `class_names`.
std::vector<double> weights_by_class(
    const RunConfig& config, const std::vector<std::string>& class_names,
    std::span<const int64_t> labels);

}  // namespace headroom::configs
