// layout_run: a short training of yolov5n under a layout, with ranks as
// threads. Its results are compared with those of one process.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"
#include "configs/run_config.h"
#include "parallel/plan/plan.h"
#include "worker/model/layer_graph.h"

namespace headroom {

struct LayoutCase {
  std::string name;
  plan::Plan plan;
  configs::OptimizerKind optimizer = configs::OptimizerKind::kSgd;
};

// Makes a case from a layout as on the command line ("data=2,pipeline=2"). A
// micro-batch size of 0 means the rank's whole share of the batch.
LayoutCase layout_case(
    const std::string& name, const std::string& layout,
    int64_t micro_batch_size, int zero_stage = 0,
    plan::ActivationPolicy policy = plan::ActivationPolicy::kKeep);

struct LayoutRunOptions {
  int64_t height = 96, width = 128;
  int64_t global_batch_size = 8;
  int64_t batch_norm_group_size = 2;
  bool even_groups = false;
  int64_t short_size = 5;  // number of samples of every short_every-th batch
  int64_t short_every = 3;
  int steps = 20;
  int64_t freeze = 0;  // the number of first layers that are not trained
  bool calm = false;   // no warm-up, a constant and tiny learning rate
  std::optional<layers::ModelTable> table;  // yolov5n if there is none
  configs::Precision precision = configs::Precision::kFp64;
  // Changes the new model's weights; may be empty.
  std::function<void(model::LayerGraph&)> fill = {};
  std::string teacher;  // a shipped model with fresh weights; "": none
};

struct LayoutRun {
  std::vector<double> loss, gradient_norm;  // per step
  std::vector<bool> skipped;  // whether the step's update was skipped
  int64_t optimizer_steps = 0;
  // Weights and averages of all stages by their names, at the end of the run.
  std::map<std::string, at::Tensor> state;
  // Bytes sent by each rank over the whole run.
  struct Bytes {
    int64_t pipeline = 0, data = 0, spatial = 0, replicas = 0, statistics = 0;
  };
  std::vector<Bytes> bytes;
  std::vector<int64_t> peak_bytes;  // per rank, the largest of all steps
};

LayoutRun run_layout(const LayoutCase& layout, const LayoutRunOptions& options);

}  // namespace headroom
