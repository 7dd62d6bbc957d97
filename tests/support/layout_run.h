// layout_run: a short training of yolov5n under some layout, with ranks as
// threads, and its results, to be compared with one process.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"
#include "configs/run_config.h"
#include "parallel/plan/plan.h"

namespace headroom {

struct LayoutCase {
  std::string name;
  plan::Plan plan;
  configs::OptimizerKind optimizer = configs::OptimizerKind::kSgd;
};

// A case from a layout as on the command line ("data=2,pipeline=2").
// Micro-batch 0: a rank's whole share.
LayoutCase layout_case(
    const std::string& name, const std::string& layout,
    int64_t micro_batch_size, int zero_stage = 0,
    plan::ActivationPolicy policy = plan::ActivationPolicy::kKeep);

struct LayoutRunOptions {
  int64_t height = 96, width = 128;
  int64_t global_batch_size = 8;
  int64_t batch_norm_group_size = 2;
  bool even_groups = false;
  int64_t short_size = 5;   // samples of every third batch,
  int64_t short_every = 3;  // or of every so many
  int steps = 20;
  int64_t freeze = 0;  // layers that do not learn
  bool calm = false;   // no warm-up, a constant and tiny learning rate
  std::optional<layers::ModelTable> table;  // if empty: yolov5n
  configs::Precision precision = configs::Precision::kFp64;
  std::string teacher;  // a shipped model, with fresh weights; "": no teacher
};

struct LayoutRun {
  std::vector<double> loss, gradient_norm;  // per step
  std::vector<bool> skipped;                // whether the update was
  int64_t optimizer_steps = 0;
  // At the end, of all stages: weights and averages under their names.
  std::map<std::string, at::Tensor> state;
  // Per rank, over the whole run.
  struct Bytes {
    int64_t pipeline = 0, data = 0, spatial = 0, replicas = 0, statistics = 0;
  };
  std::vector<Bytes> bytes;
  std::vector<int64_t> peak_bytes;  // the largest of any step
};

LayoutRun run_layout(const LayoutCase& layout, const LayoutRunOptions& options);

}  // namespace headroom
