// TrainingState: everything that a committed step changes, and nothing else.
//
// Weights, moments, accumulated gradients and averaged weights are ranges of
// flat buffers with one layout, so that an optimizer step, a snapshot and a
// checkpoint are loops over ranges. Under ZeRO a rank holds its slice of every
// layer of them (parallel/zero):
//
//   stage   weights    step's gradient   accumulated, moments, average
//   0       whole      whole             whole
//   1       whole      whole             slices
//   2       whole      slices            slices
//   3       slices     slices            slices
//
// ZeRO over one rank is stage 0. Maps of 16 bits are convolved with a copy of
// the weights in their type, which every commit renews; all else is float32.
//
// Ownership: owns two graphs: the one that learns, and the exponential moving
// average (EMA) that is validated and saved; each is a view of its buffers.
// Borrows the mesh.
// Invariants:
//   1. the state after counters.committed_steps steps is what this holds
//      between two steps; a step that fails before its commit leaves it alone;
//   2. commit() allocates nothing; under ZeRO 1 and 2 it gathers the weights.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/ScalarType.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "configs/layers/model_table.h"
#include "parallel/collectives/mesh.h"
#include "parallel/data_parallel/flat_buffer.h"
#include "parallel/devices/compute_device.h"
#include "parallel/zero/layer_gather.h"
#include "parallel/zero/shard_map.h"
#include "worker/model/layer_graph.h"
#include "worker/optim/loss_scale.h"
#include "worker/optim/lr_schedule.h"
#include "worker/optim/optimizer.h"
#include "worker/step/device_state.h"
#include "worker/step/step_gradients.h"
#include "worker/step/zero_layer_executor.h"

namespace headroom::step {

// The data set that a run trains on. Checkpoints keep it, so that a run that
// goes on with another one can say so.
struct TrainingData {
  int64_t images = 0;  // 0: none, or a checkpoint of a build that did not say
  uint64_t digest =
      0;  // worker/data/labels/dataset.h: wherever the data set lies
  bool operator==(const TrainingData&) const = default;
};

// The message where a run of `committed` steps goes on with `now`, of
// `steps_in_epoch`; empty where nothing has changed.
std::string data_change(const TrainingData& before, const TrainingData& now,
                        int64_t committed, int64_t steps_in_epoch);

// Means of the loss terms over the steps of an epoch so far. They are part of
// the committed state, so that a resumed epoch has its whole mean.
struct EpochMeter {
  int64_t steps = 0;
  double box = 0, obj = 0, cls = 0;

  void add(double step_box, double step_obj, double step_cls) {
    ++steps;
    box += (step_box - box) / static_cast<double>(steps);
    obj += (step_obj - obj) / static_cast<double>(steps);
    cls += (step_cls - cls) / static_cast<double>(steps);
  }
};

struct TrainingCounters {
  int64_t committed_steps = 0;
  int64_t optimizer_steps = 0;       // also the EMA's update count
  int64_t last_optimizer_step = -1;  // its step number
  double best_fitness = -1;          // 0.1 mAP50 + 0.9 mAP50-95
  int64_t best_epoch = -1;
  int64_t recorded_epochs = 0;  // validated and written to results.csv
  EpochMeter meter;             // the epoch that has begun
  optim::LossScale loss_scale;  // float16's
  // mAP50-95 by class in the newest validation, with --image-weights; empty
  // until there was one.
  std::vector<double> class_maps;
  TrainingData data;  // the newest start's
};

// What one commit applies.
struct CommitArguments {
  int64_t step = 0;
  int64_t num_groups = 1;    // batch-norm groups of the global batch
  double gradient_norm = 0;  // the accumulated gradient's, with this step's
  optim::StepSettings settings;
  double weight_decay = 0;  // group 1's
};

struct TrainingStateOptions {
  int64_t num_classes = 80;
  at::ScalarType scalar_type = at::kFloat;
  // The type of the network's maps in training; none: scalar_type. bfloat16 and
  // float16 go with a float32 state.
  std::optional<at::ScalarType> map_type = {};
  uint64_t seed = 0;
  int64_t freeze = 0;  // layers [0, freeze) do not learn
  optim::OptimizerKind optimizer = optim::OptimizerKind::kSgd;
  int zero_stage = 0;
  devices::ComputeDevice device = {};  // the place of all of it
  // The layers of this pipeline stage; none: all.
  std::optional<model::LayerGraph::LayerRange> layers;
  collectives::Mesh* mesh = nullptr;  // null: one process
  // Called with the new model before anything is split: loads weights and makes
  // the ranks equal. May be empty.
  std::function<void(model::LayerGraph&)> fill;
};

class TrainingState {
 public:
  TrainingState(const layers::ModelTable& table,
                const TrainingStateOptions& options);

  model::LayerGraph& model() { return *model_; }
  model::LayerGraph& average_model() { return *average_model_; }
  at::ScalarType scalar_type() const { return options_.scalar_type; }
  at::ScalarType map_type() const {
    return options_.map_type.value_or(options_.scalar_type);
  }
  const devices::ComputeDevice& device() const { return options_.device; }
  // Options of the maps between layers in training, and of all other tensors.
  at::TensorOptions map_options() const {
    return options_.device.options(map_type());
  }
  at::TensorOptions state_options() const {
    return options_.device.options(options_.scalar_type);
  }
  collectives::Mesh* mesh() const { return options_.mesh; }
  // Double, one [2, C] slice per batch-norm layer (StepContext).
  at::Tensor& batch_norm_sums() { return batch_norm_sums_; }

  // --- a step, before its vote ---
  StepGradients& gradients() { return *gradients_; }
  // How the model's layers run; null: as they are. `inner` runs a layer whose
  // parameters are whole.
  model::LayerExecutor* layer_executor(model::LayerExecutor* inner = nullptr);
  // This rank's share of the squared L2 norm of the accumulated gradient with
  // this step's added: each element is counted by one rank of the world. The
  // host waits for the device here.
  double squared_norm_share() const;
  bool counts_norm() const;  // false: the share is 0

  // Divides the gradients of a loss that was multiplied by `scale`, a power of
  // two; on a device, where they are read next: for the norm and the commit.
  void unscale_gradients(double scale);

  // --- its end on a device, which `device_state.h` explains ---
  // Null on the CPU.
  DeviceState* device_state() { return device_state_.get(); }
  // What DeviceState is told of the commit, on the host.
  at::Tensor commit_numbers(const CommitArguments& arguments,
                            bool may_commit) const;
  // Norm, decision and commit of the only rank: it asks nobody. Allocates
  // nothing, and the host does not wait. `numbers`, `items`: as
  // DeviceState::measure.
  void end_on_device(const at::Tensor& numbers, const at::Tensor& items);
  // Counts a step that the device has committed. Returns whether the optimizer
  // stepped.
  bool note_commit(const CommitArguments& arguments);

  // Drops what a step, or a validation, that failed on any rank has left.
  // REQUIRES: the mesh has been disconnected since, unless this rank is alone.
  void abandon_step();

  // --- its commit ---
  // `callback` is called before anything changes, so that a reader of the
  // present state can finish. May be empty.
  void set_before_change(std::function<void()> callback) {
    before_change_ = std::move(callback);
  }
  // Code that changes the state from outside calls it first.
  void before_change() const {
    if (before_change_) before_change_();
  }
  // Neither a partial accumulation nor the means outlive their epoch.
  void start_epoch();
  // Adds the step's reduced gradient, moves the running statistics, and, where
  // the schedule says so, clips, steps the optimizer and moves the EMA. Returns
  // whether the optimizer stepped. Collective under ZeRO 1 and 2.
  bool commit(const CommitArguments& arguments);
  // Counts a step whose update is skipped.
  void commit_without_update(int64_t step);

  // --- between steps ---
  // Runs the average model's layers; null: they are called as they are.
  GatherLayerExecutor* average_layer_executor() {
    return average_runner_.get();
  }
  // Renews the weights' copy in the maps' type after they were changed from
  // outside.
  void renew_compute_weights();
  // The EMA starts as a copy of the weights.
  void reset_average();

  // Whether a layer of an earlier pipeline stage learns. Where none does, the
  // gradients of the maps that come from there are not needed.
  bool has_learners_before() const {
    return options_.freeze < model_->kept_layers().begin;
  }

  TrainingCounters counters;

  // A buffer of the state, for checkpoints.
  struct Buffer {
    std::string name;                        // "parameters", "momentum", …
    data_parallel::FlatBuffer* flat_buffer;  // its entries, by layers
    at::Tensor* flat;  // [flat_buffer->size()], or this rank's shard
    const zero::ShardMap* shards;  // null: whole
  };
  std::vector<Buffer> buffers();
  // Whether a commit failed midway, because a peer was lost: this is no step's
  // state then.
  bool is_torn() const { return is_torn_; }
  // Whether ranks hold slices of the state.
  bool is_sharded() const { return zero_stage_ > 0; }
  // Whether this rank can do without the others.
  bool is_whole() const;
  // Bytes of all buffers together, over all stages and undivided, without
  // padding.
  int64_t total_bytes() const;
  // Bytes of weights, gradients, moments and averages between two steps, on
  // this rank.
  int64_t resident_bytes();

 private:
  // One range of everything that the optimizer moves together.
  struct Piece {
    at::Tensor values, gradient, accumulated, average;
    std::vector<at::Tensor> moments;
    // Each group's, offsets within the piece.
    std::vector<optim::Segment> segments;
  };

  void build_parameters();
  void build_compute_weights();
  void build_accumulation();
  void build_average(const layers::ModelTable& table);
  void build_pieces();
  int64_t shard_size() const;
  void build_device_state();
  bool is_optimizer_step(const CommitArguments& arguments) const;
  optim::OptimizerStep optimizer_step(const CommitArguments& arguments) const;
  void commit_on_host(const CommitArguments& arguments);
  void move_running_statistics(int64_t num_groups);
  void gather_parameters();

  TrainingStateOptions options_;
  std::function<void()> before_change_;
  bool is_torn_ = false;
  double gradient_scale_ = 1;  // set on a device
  int zero_stage_;             // 0 over one rank
  // Numbers of elements of the whole model, all stages.
  int64_t num_parameters_ = 0;
  int64_t num_statistics_ = 0;
  std::unique_ptr<model::LayerGraph> model_;
  std::unique_ptr<model::LayerGraph> average_model_;
  std::unique_ptr<data_parallel::FlatBuffer> parameters_;
  std::unique_ptr<data_parallel::FlatBuffer> statistics_;
  std::unique_ptr<data_parallel::FlatBuffer> average_parameters_;
  std::unique_ptr<data_parallel::FlatBuffer> average_statistics_;
  std::unique_ptr<zero::ShardMap> shards_;
  std::unique_ptr<StepGradients> gradients_;
  std::unique_ptr<zero::LayerGather> average_layers_;  // sharded
  std::unique_ptr<ZeroLayerExecutor> runner_;          // ZeRO 3
  std::unique_ptr<GatherLayerExecutor> average_runner_;
  // The parameters in the maps' type; undefined where that is their own type,
  // and under ZeRO 3, which casts a layer while it is whole.
  at::Tensor compute_weights_;
  at::Tensor accumulated_;
  std::vector<at::Tensor> moments_;
  at::Tensor batch_norm_sums_;
  at::Tensor slice_;  // ZeRO 1 and 2: what a gather of weights sends
  std::vector<Piece> pieces_;
  std::unique_ptr<DeviceState> device_state_;  // null on the CPU
};

}  // namespace headroom::step
