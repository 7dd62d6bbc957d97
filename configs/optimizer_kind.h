// OptimizerKind: the optimizer of a run (worker/optim/optimizer.h).
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "parallel/plan/named_values.h"

namespace headroom::configs {

// kAuto is replaced when the run starts (configs/recipe.h). Before, plans count
// the moments of AdamW for it.
enum class OptimizerKind { kSgd, kAdam, kAdamW, kAuto };

struct OptimizerDescription {
  OptimizerKind value;
  const char* name;     // the value of --optimizer, as in YOLOv5
  int64_t num_moments;  // state values per parameter
};

inline constexpr auto kOptimizers =
    std::to_array<OptimizerDescription>({{OptimizerKind::kSgd, "SGD", 1},
                                         {OptimizerKind::kAdam, "Adam", 2},
                                         {OptimizerKind::kAdamW, "AdamW", 2},
                                         {OptimizerKind::kAuto, "auto", 2}});

inline std::string to_string(OptimizerKind kind) {
  return name_in(kOptimizers, kind);
}

inline int64_t num_moments(OptimizerKind kind) {
  return entry_in(kOptimizers, kind).num_moments;
}

}  // namespace headroom::configs
