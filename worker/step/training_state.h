// TrainingState: exactly the data that committed steps change.
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
// ZeRO over one rank is stage 0. For 16-bit maps, convolutions use a copy of
// the weights in that type, renewed by every commit; all else is float32.
//
// Ownership: owns two models, the trained one and its exponential moving
// average (EMA), which is validated and saved. Each is a view of its buffers.
// Borrows the mesh.
// Invariants:
//   1. between two steps this is the state after counters.committed_steps
//      steps; a step that fails before its commit does not change it;
//   2. commit() allocates no memory; under ZeRO 1 and 2 it gathers the weights.
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
#include "parallel/base/loss_terms.h"
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

// The training set of a run. Checkpoints store it, so that a resumed run can
// report that the training set has changed.
struct TrainingData {
  int64_t images = 0;   // 0 if unknown, as in old checkpoints
  uint64_t digest = 0;  // Dataset::digest(): independent of the folder
  bool operator==(const TrainingData&) const = default;
};

// Means of the loss terms over the epoch so far: part of the committed state,
// so that a resumed epoch has its whole mean.
struct EpochMeter {
  int64_t steps = 0;
  LossTerms means = {};

  void add(const LossTerms& of_step) {
    ++steps;
    for (size_t i = 0; i < means.size(); ++i) {
      means[i] += (of_step[i] - means[i]) / static_cast<double>(steps);
    }
  }
};

struct TrainingCounters {
  int64_t committed_steps = 0;
  int64_t optimizer_steps = 0;       // also the number of the EMA's updates
  int64_t last_optimizer_step = -1;  // newest step that ran the optimizer
  double best_fitness = -1;          // 0.1 mAP50 + 0.9 mAP50-95
  int64_t best_epoch = -1;
  int64_t recorded_epochs = 0;  // validated and written to results.csv
  EpochMeter meter;             // means of the current epoch
  optim::LossScale loss_scale;  // used in float16 only
  // mAP50-95 by class in the newest validation, with --image-weights; empty
  // before the first one.
  std::vector<double> class_maps;
  TrainingData data;  // training set when the run last began or resumed
};

// The arguments of one commit().
struct CommitArguments {
  int64_t step = 0;
  int64_t num_groups = 1;    // batch-norm groups of the global batch
  double gradient_norm = 0;  // norm of this step's and the accumulated gradient
  optim::StepSettings settings;
  double weight_decay = 0;  // decay of parameter group 1 (convolution weights)
};

struct TrainingStateOptions {
  int64_t num_classes = 80;
  at::ScalarType scalar_type = at::kFloat;
  // The type of the network's maps in training; scalar_type if not set.
  // bfloat16 and float16 require a float32 state.
  std::optional<at::ScalarType> map_type = {};
  uint64_t seed = 0;
  int64_t freeze = 0;  // layers [0, freeze) are not trained
  optim::OptimizerKind optimizer = optim::OptimizerKind::kSgd;
  int zero_stage = 0;
  devices::ComputeDevice device = {};  // the device of all tensors
  // The layers of this pipeline stage; all layers if not set.
  std::optional<model::LayerGraph::LayerRange> layers;
  collectives::Mesh* mesh = nullptr;  // null for one process
  // Called with the new model before it is sliced: loads weights and makes all
  // ranks equal. May be empty.
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
  // map_options(): for the maps between layers in training. state_options():
  // for all other tensors.
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
  // Runs the model's layers; null if they are called directly. `inner` runs a
  // layer while this rank has all of the layer's parameters.
  model::LayerExecutor* layer_executor(model::LayerExecutor* inner = nullptr);
  // This rank's share of the squared L2 norm of the accumulated gradient plus
  // this step's gradient. Each element is counted by one rank. The host waits
  // for the device.
  double squared_norm_share() const;

  // Divides the gradients by `scale`. On a device the division takes place when
  // the norm and the commit read the gradients.
  void unscale_gradients(double scale);

  // --- the step's end on a device (device_state.h) ---
  // Null on the CPU.
  DeviceState* device_state() { return device_state_.get(); }
  // The commit's settings for DeviceState: a packed kernels::CommitNumbers, on
  // the host.
  at::Tensor commit_numbers(const CommitArguments& arguments,
                            bool may_commit) const;
  // Norm, decision and commit. Allocates nothing, and the host does not wait.
  // Arguments: as of DeviceState::measure().
  void end_on_device(const at::Tensor& numbers, const at::Tensor& items,
                     const DeviceState::Peers& peers = {});
  // Counts a step that the device has committed. Returns whether the optimizer
  // stepped.
  bool note_commit(const CommitArguments& arguments);

  // Drops a step or validation that failed on any rank.
  // REQUIRES: the mesh has been disconnected since the failure, unless this
  // rank is alone.
  void abandon_step();

  // --- the step's commit ---
  // Sets a callback that commits call before they change the state. The
  // callback waits until readers of the current state are done. May be empty.
  void set_before_change(std::function<void()> callback) {
    before_change_ = std::move(callback);
  }
  // Called before code outside of this class changes the state.
  void before_change() const {
    if (before_change_) before_change_();
  }
  // Clears the epoch's means, and the accumulated gradient unless it is carried
  // into the epoch.
  void start_epoch(bool carries_accumulation = false);
  // Adds the step's reduced gradient and updates the running statistics. In
  // steps in which the schedule runs the optimizer, also clips the gradient,
  // steps the optimizer and updates the EMA. Returns whether the optimizer
  // stepped. Collective under ZeRO 1 and 2.
  bool commit(const CommitArguments& arguments);
  // Counts a step whose update is skipped.
  void commit_without_update(int64_t step);

  // --- between steps ---
  // Runs the average model's layers; null if they are called directly.
  GatherLayerExecutor* average_layer_executor() {
    return average_runner_.get();
  }
  // Renews the copy of the weights in the maps' type. Called after weights were
  // changed from outside.
  void renew_compute_weights();
  // The copy of the weights in the maps' type; undefined if there is none.
  const at::Tensor& compute_weights() const { return compute_weights_; }
  // Sets the EMA to a copy of the weights.
  void reset_average();

  // Whether a layer of an earlier pipeline stage learns. If not, gradients of
  // the maps from earlier stages are not needed.
  bool has_learners_before() const {
    return options_.freeze < model_->kept_layers().begin;
  }

  TrainingCounters counters;

  // A buffer of the state, for checkpoints.
  struct Buffer {
    // Which commits change the buffer: all; those without an optimizer step,
    // while those with one set it to zero; those with an optimizer step.
    enum class Change { kEach, kBetweenUpdates, kUpdates };

    std::string name;                        // "parameters", "momentum", …
    data_parallel::FlatBuffer* flat_buffer;  // the buffer's entries by layer
    at::Tensor* flat;  // [flat_buffer->size()], or this rank's slices
    const zero::ShardMap* shards;  // null if `flat` is not sliced
    // The slices of which a rank's optimizer step computes one; null if it
    // computes all. The weights of ZeRO 1 and 2 have owners, but no shards.
    const zero::ShardMap* owners;
    Change change;
  };
  const std::vector<Buffer>& buffers() const { return buffers_; }
  // Whether a peer was lost during a commit, so that this is not the state of
  // any step.
  bool is_torn() const { return is_torn_; }
  // Whether the newest commit ran the optimizer.
  bool has_just_updated() const {
    return counters.last_optimizer_step + 1 == counters.committed_steps;
  }
  // Whether ranks hold slices of the state.
  bool is_sharded() const { return slices_.rest; }
  // Whether this rank holds all of the state.
  bool is_whole() const;

 private:
  void build_parameters();
  void build_compute_weights();
  void build_accumulation();
  void build_average(const layers::ModelTable& table);
  void build_buffers();
  void build_pieces();
  bool is_optimizer_step(const CommitArguments& arguments) const;
  optim::OptimizerStep optimizer_step(const CommitArguments& arguments) const;
  void commit_on_host(const CommitArguments& arguments);
  void move_running_statistics(int64_t num_groups);
  void gather_parameters();
  bool counts_norm() const;

  TrainingStateOptions options_;
  std::function<void()> before_change_;
  bool is_torn_ = false;
  double gradient_scale_ = 1;  // factor that unscales gradients on a device
  const Slices slices_;
  std::unique_ptr<model::LayerGraph> model_;
  std::unique_ptr<model::LayerGraph> average_model_;
  std::unique_ptr<data_parallel::FlatBuffer> parameters_;
  std::unique_ptr<data_parallel::FlatBuffer> statistics_;
  std::unique_ptr<data_parallel::FlatBuffer> average_parameters_;
  std::unique_ptr<data_parallel::FlatBuffer> average_statistics_;
  std::unique_ptr<zero::ShardMap> shards_;
  std::unique_ptr<StepGradients> gradients_;
  std::unique_ptr<zero::LayerGather> average_layers_;  // null if not sharded
  std::unique_ptr<ZeroLayerExecutor> runner_;          // null below ZeRO 3
  std::unique_ptr<GatherLayerExecutor> average_runner_;
  // The parameters in the maps' type. Undefined if they have that type already,
  // and under ZeRO 3, which casts the parameters of one layer while they are
  // gathered.
  at::Tensor compute_weights_;
  at::Tensor accumulated_;
  std::vector<at::Tensor> moments_;
  at::Tensor batch_norm_sums_;
  std::vector<Buffer> buffers_;
  std::vector<DeviceState::Piece> pieces_;
  std::unique_ptr<DeviceState> device_state_;  // null on the CPU
};

}  // namespace headroom::step
