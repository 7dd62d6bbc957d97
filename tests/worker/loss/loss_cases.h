// The head-only cases of the parity vectors as this library's types.
//
// Threads: the test's one thread.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "worker/loss/detection_loss.h"

namespace headroom::loss {

// Rows image,class,x,y,w,h of a tensor.
std::vector<LabelRow> to_labels(const at::Tensor& rows);

// Gains that are already scaled ("hyp_used" of a case).
LossGains to_gains(const nlohmann::json& hyp_used, const std::string& family,
                   int64_t num_classes);

// One head case, built for a precision.
struct HeadCase {
  std::vector<LabelRow> labels;
  std::vector<LevelGrid> grids;
  std::vector<at::Tensor> heads;  // leaves that require gradients
  std::vector<LevelTargets> targets;
  GlobalCounts counts;
  LossGains gains;
};
HeadCase head_case(const std::string& name, at::ScalarType scalar_type);

// The names of the cases that have a loss. Cases that only update the balance
// have no loss.
std::vector<std::string> head_case_names();

// Counts the rows of targets of each level, for a batch that is the whole
// global batch.
GlobalCounts count_all(int64_t images,
                       const std::vector<LevelTargets>& targets);

}  // namespace headroom::loss
