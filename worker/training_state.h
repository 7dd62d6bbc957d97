// TrainingState: everything that a committed step changes, and nothing else.
//
// Weights, momentum, accumulated gradients and averaged weights are ranges of
// flat buffers with one layout, so that an optimizer step, a snapshot and a
// checkpoint are loops over ranges, and later a shard is one of them.
//
// Ownership: owns two graphs: the one that learns, and the exponential moving
// average (EMA) that is validated and saved; each is a view of its buffers.
// Threads: one at a time.
// Invariants:
//   1. the state after counters.committed_steps steps is what this holds
//      between two steps; a step that fails before its commit leaves it alone;
//   2. commit() allocates nothing.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "configs/model_table.h"
#include "parallel/data_parallel/arena.h"
#include "worker/epoch_meter.h"
#include "worker/model/layer_graph.h"
#include "worker/optim/lr_schedule.h"
#include "worker/optim/sgd.h"

namespace headroom {

struct TrainingCounters {
  int64_t committed_steps = 0;
  int64_t optimizer_steps = 0;       // also the EMA's update count
  int64_t last_optimizer_step = -1;  // its step number
  double best_fitness = -1;          // 0.1 mAP50 + 0.9 mAP50-95
  int64_t best_epoch = -1;
  int64_t recorded_epochs = 0;  // validated and written to results.csv
  // Of the epoch under way.
  EpochMeter meter;
};

// What one commit applies.
struct CommitArguments {
  int64_t step = 0;
  int64_t num_groups = 1;  // batch-norm groups of the global batch
  double gradient_norm =
      0;  // of the accumulated gradient, this step's included
  StepSettings settings;
  double weight_decay = 0;  // of group 1
};

class TrainingState {
 public:
  // Rows [0, freeze) do not learn.
  TrainingState(const ModelTable& table, int64_t num_classes,
                at::ScalarType scalar_type, uint64_t seed, int64_t freeze);

  LayerGraph& model() { return *model_; }
  LayerGraph& average_model() { return *average_model_; }
  Arena& parameters() { return *parameters_; }
  // Double, one [2, C] slice per batch-norm layer (StepContext).
  at::Tensor& batch_norm_sums() { return batch_norm_sums_; }

  // L2 norm of the accumulated gradient with this step's added.
  double accumulated_gradient_norm() const;

  // Neither a partial accumulation nor the means outlive their epoch.
  void start_epoch();
  // Adds the step's reduced gradient (parameters().gradients()), moves the
  // running statistics, and, where the schedule says so, clips, steps the
  // optimizer and moves the EMA. Returns whether the optimizer stepped.
  bool commit(const CommitArguments& arguments);
  // Counts a step whose update is skipped.
  void commit_without_update(int64_t step);

  // The EMA starts as a copy of the weights.
  void reset_average();

  TrainingCounters counters;

  // A flat buffer and the entries it holds, for checkpoints and broadcasts.
  struct Buffer {
    std::string name;  // "parameters", "momentum", …
    Arena* arena = nullptr;
    at::Tensor* flat = nullptr;
  };
  std::vector<Buffer> buffers();

 private:
  std::unique_ptr<LayerGraph> model_;
  std::unique_ptr<LayerGraph> average_model_;
  std::unique_ptr<Arena> parameters_;
  std::unique_ptr<Arena> statistics_;
  std::unique_ptr<Arena> average_parameters_;
  std::unique_ptr<Arena> average_statistics_;
  at::Tensor momentum_;
  at::Tensor accumulated_;
  at::Tensor batch_norm_sums_;
  std::vector<Segment> segments_;  // what the optimizer moves, by group
};

}  // namespace headroom
