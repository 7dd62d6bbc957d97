#include "worker/step/training_state.h"

#include <ATen/Dispatch.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <span>

#include "parallel/activations/step_phase.h"
#include "parallel/base/check.h"
#include "parallel/base/memory_category.h"
#include "parallel/base/text.h"
#include "worker/model/conv_block.h"
#include "worker/optim/optimizer.h"

namespace headroom::step {
namespace {

std::vector<data_parallel::FlatBufferEntry> entries(model::LayerGraph& model,
                                                    bool parameters) {
  std::vector<data_parallel::FlatBufferEntry> result;
  for (const model::NamedTensor& entry : model.state()) {
    const bool wanted =
        parameters ? entry.is_parameter()
                   : entry.role == model::TensorRole::kRunningStatistic;
    if (wanted) {
      result.push_back({entry.name, entry.tensor, entry.layer});
    }
  }
  return result;
}

// YOLOv5's parameter groups.
int parameter_group(model::TensorRole role) {
  if (role == model::TensorRole::kConvolutionWeight) return optim::kWeightGroup;
  return role == model::TensorRole::kNormWeight ? optim::kNormWeightGroup
                                                : optim::kBiasGroup;
}

// The parts of elements [begin, end) that are trained; offsets from `begin`.
std::vector<optim::Segment> segments_in(
    model::LayerGraph& model, const data_parallel::FlatBuffer& flat_buffer,
    int64_t begin, int64_t end) {
  std::vector<optim::Segment> segments;
  size_t slot = 0;
  for (const model::NamedTensor& entry : model.state()) {
    if (!entry.is_parameter()) continue;
    const data_parallel::FlatBuffer::Slot& place = flat_buffer.slots()[slot++];
    const int64_t from = std::max(begin, place.offset);
    const int64_t to = std::min(end, place.offset + place.size);
    if (from >= to || !entry.tensor->requires_grad()) continue;
    segments.push_back({from - begin, to - from, parameter_group(entry.role)});
  }
  return segments;
}

// The flat buffer's layer that holds the parameters of each layer of the table,
// or -1.
std::vector<int64_t> part_of_layer(
    const model::LayerGraph& model,
    const data_parallel::FlatBuffer& flat_buffer) {
  std::vector<int64_t> parts(static_cast<size_t>(model.num_layers()), -1);
  for (size_t part = 0; part < flat_buffer.layers().size(); ++part) {
    parts.at(static_cast<size_t>(flat_buffer.layers()[part].number)) =
        static_cast<int64_t>(part);
  }
  return parts;
}

std::vector<at::Tensor> layer_values(
    const data_parallel::FlatBuffer& flat_buffer) {
  std::vector<at::Tensor> layers;
  for (size_t layer = 0; layer < flat_buffer.layers().size(); ++layer) {
    layers.push_back(flat_buffer.layer_values(static_cast<int64_t>(layer)));
  }
  return layers;
}

// running = (1 - momentum) * running + momentum * sum / num_groups
template <typename Scalar>
void move_running_statistic(const at::Tensor& running, const double* sums,
                            int64_t channels, int64_t num_groups) {
  Scalar* values = running.data_ptr<Scalar>();
  for (int64_t c = 0; c < channels; ++c) {
    const double mean = sums[c] / static_cast<double>(num_groups);
    values[c] = static_cast<Scalar>((1 - model::kBatchNormMomentum) *
                                        static_cast<double>(values[c]) +
                                    model::kBatchNormMomentum * mean);
  }
}

}  // namespace

TrainingState::TrainingState(const layers::ModelTable& table,
                             const TrainingStateOptions& options)
    : options_(options),
      // Without other ranks nothing is sliced.
      slices_(options.mesh != nullptr && options.mesh->data->size() > 1
                  ? options.zero_stage
                  : 0) {
  HEADROOM_CHECK(options.zero_stage >= 0 && options.zero_stage <= 3,
                 cat("ZeRO stage ", options.zero_stage));
  const MemoryCategoryScope parameters(MemoryCategory::kParameters);
  model_ = std::make_unique<model::LayerGraph>(
      table, options.num_classes, options.scalar_type, options.seed);
  if (options.fill) options.fill(*model_);
  if (options.layers) model_->keep_layers(*options.layers);
  build_parameters();
  build_compute_weights();
  build_average(table);
  build_accumulation();
  batch_norm_sums_ = at::zeros({model_->batch_norm_sums_size()},
                               options.device.options(at::kDouble));
  build_buffers();
  build_pieces();
  if (!options.device.is_cpu()) {
    device_state_ = std::make_unique<DeviceState>(
        options.device, *model_, *statistics_, average_statistics_->values(),
        batch_norm_sums_, pieces_);
  }
  reset_average();
}

void TrainingState::build_parameters() {
  data_parallel::FlatBufferOptions options;
  options.scalar_type = options_.scalar_type;
  options.device = options_.device.device();
  statistics_ = std::make_unique<data_parallel::FlatBuffer>(
      entries(*model_, false), options);
  options.with_gradients = true;
  options.layer_parts = slices_.rest ? options_.mesh->data->size() : 1;
  options.gradients_apart = slices_.gradients;
  options.values_apart = slices_.weights;
  if (options_.mesh != nullptr && options_.device.is_cpu()) {
    options.make_gradients = [this](int64_t count, at::ScalarType type) {
      return options_.mesh->replicas->zeros(count, type);
    };
    if (slices_.rest) {
      options.make_values = [this](int64_t count, at::ScalarType type) {
        return options_.mesh->data->zeros(count, type);
      };
    }
  }
  parameters_ = std::make_unique<data_parallel::FlatBuffer>(
      entries(*model_, true), options);
  model_->freeze(options_.freeze);

  std::vector<int64_t> sizes;
  for (const data_parallel::FlatBuffer::Layer& layer : parameters_->layers())
    sizes.push_back(layer.size);
  shards_ = std::make_unique<zero::ShardMap>(sizes, options.layer_parts,
                                             parameters_->alignment());
  HEADROOM_CHECK(shards_->whole_size() == parameters_->size(),
                 "flat buffer and shard map differ");
  gradients_ = std::make_unique<StepGradients>(*parameters_, *shards_, slices_,
                                               options_.mesh);
  if (slices_.weights) {
    runner_ = std::make_unique<ZeroLayerExecutor>(
        *gradients_->sharded(), part_of_layer(*model_, *parameters_));
  }
}

void TrainingState::build_compute_weights() {
  if (map_type() == options_.scalar_type || slices_.weights) return;
  const MemoryCategoryScope scope(MemoryCategory::kParameters);
  compute_weights_ = at::empty(
      {parameters_->size()}, parameters_->values().options().dtype(map_type()));
  int64_t slot = 0;
  for (const model::NamedTensor& entry : model_->state()) {
    if (!entry.is_parameter()) continue;
    if (entry.compute != nullptr) {
      *entry.compute = parameters_->view(slot, compute_weights_);
    }
    ++slot;
  }
  renew_compute_weights();
}

void TrainingState::abandon_step() {
  release_failed_graph();
  gradients_->abandon();
  if (average_runner_) average_runner_->release_all();
}

void TrainingState::renew_compute_weights() {
  const at::NoGradGuard no_grad;
  if (compute_weights_.defined()) {
    compute_weights_.copy_(parameters_->values());
  }
}

void TrainingState::build_accumulation() {
  const at::TensorOptions type = state_options();
  const int64_t size =
      slices_.rest ? shards_->shard_size() : parameters_->size();
  {
    const MemoryCategoryScope scope(MemoryCategory::kGradients);
    accumulated_ = at::zeros({size}, type);
  }
  const MemoryCategoryScope scope(MemoryCategory::kOptimizer);
  for (size_t i = 0; i < optim::moment_names(options_.optimizer).size(); ++i) {
    moments_.push_back(at::zeros({size}, type));
  }
}

void TrainingState::build_average(const layers::ModelTable& table) {
  const MemoryCategoryScope scope(MemoryCategory::kAverage);
  average_model_ = std::make_unique<model::LayerGraph>(
      table, options_.num_classes, options_.scalar_type, options_.seed);
  if (options_.layers) average_model_->keep_layers(*options_.layers);
  data_parallel::FlatBufferOptions options;
  options.scalar_type = options_.scalar_type;
  options.device = options_.device.device();
  average_statistics_ = std::make_unique<data_parallel::FlatBuffer>(
      entries(*average_model_, false), options);
  options.layer_parts = shards_->num_ranks();
  options.values_apart = slices_.rest;
  average_parameters_ = std::make_unique<data_parallel::FlatBuffer>(
      entries(*average_model_, true), options);
  if (!slices_.rest) return;
  average_layers_ = std::make_unique<zero::LayerGather>(
      *shards_, layer_values(*average_parameters_), *options_.mesh->data);
  average_runner_ = std::make_unique<GatherLayerExecutor>(
      *average_layers_, part_of_layer(*average_model_, *average_parameters_));
}

void TrainingState::build_buffers() {
  using Change = Buffer::Change;
  const zero::ShardMap* const owners = slices_.rest ? shards_.get() : nullptr;
  const auto add = [&](const std::string& name, at::Tensor& flat,
                       Change change = Change::kUpdates) {
    buffers_.push_back(
        {name, parameters_.get(), &flat, owners, owners, change});
  };
  add("parameters", slices_.weights ? gradients_->sharded()->value_shard()
                                    : parameters_->values());
  if (!slices_.weights) buffers_.back().shards = nullptr;
  const auto names = optim::moment_names(options_.optimizer);
  for (size_t i = 0; i < names.size(); ++i) add(names[i], moments_[i]);
  add("accumulated_gradients", accumulated_, Change::kBetweenUpdates);
  add("average_parameters",
      slices_.rest ? average_layers_->shard() : average_parameters_->values());
  buffers_.back().flat_buffer = average_parameters_.get();
  const auto add_whole = [&](const std::string& name,
                             data_parallel::FlatBuffer& entries,
                             Change change) {
    buffers_.push_back(
        {name, &entries, &entries.values(), nullptr, nullptr, change});
  };
  add_whole("statistics", *statistics_, Change::kEach);
  add_whole("average_statistics", *average_statistics_, Change::kUpdates);
}

// A whole state is one piece; a sliced one has a piece per layer.
void TrainingState::build_pieces() {
  const at::Tensor& values = *buffers_.front().flat;
  const at::Tensor& average =
      slices_.rest ? average_layers_->shard() : average_parameters_->values();
  const at::Tensor& gradient = gradients_->own();
  const auto add = [&](int64_t begin, int64_t begin_in_slices, int64_t size) {
    const auto part = [&](const at::Tensor& flat, bool in_slices) {
      return flat.narrow(0, in_slices ? begin_in_slices : begin, size);
    };
    const auto moment = [&](size_t i) {
      return i < moments_.size() ? part(moments_[i], slices_.rest)
                                 : at::Tensor();
    };
    pieces_.push_back(
        {{part(values, slices_.weights), part(gradient, slices_.gradients),
          part(accumulated_, slices_.rest), moment(0), moment(1),
          part(average, slices_.rest), /*pieces=*/{}},
         segments_in(*model_, *parameters_, begin, begin + size)});
  };
  if (!slices_.rest) return add(0, 0, parameters_->size());
  for (int64_t layer = 0; layer < shards_->num_layers(); ++layer) {
    const int64_t size = shards_->slice_size(layer);
    add(shards_->layer_offset(layer) + options_.mesh->data->rank() * size,
        shards_->shard_offset(layer), size);
  }
}

model::LayerExecutor* TrainingState::layer_executor(
    model::LayerExecutor* inner) {
  if (!runner_) return inner;
  runner_->set_inner(inner);
  return runner_.get();
}

bool TrainingState::counts_norm() const {
  const collectives::Mesh* mesh = options_.mesh;
  if (mesh == nullptr) return true;
  // Of the ranks with equal copies, only one counts the elements.
  return mesh->here.spatial_rank == 0 &&
         (slices_.rest || mesh->here.data_parallel_rank == 0);
}

double TrainingState::squared_norm_share() const {
  if (!counts_norm()) return 0;
  if (device_state_ != nullptr) {
    device_state_->measure(
        device_state_->upload(commit_numbers({}, /*may_commit=*/false)), {});
    return DeviceState::outcome_of(device_state_->outcome()).squared_norm;
  }
  double sum = 0;
  for (const auto& [flat, segments] : pieces_) {
    sum += optim::squared_norm_of_sum(flat.accumulated, flat.gradients);
  }
  return sum;
}

void TrainingState::unscale_gradients(double scale) {
  if (device_state_ != nullptr) {
    gradient_scale_ = 1 / scale;
    return;
  }
  if (scale == 1) return;
  const at::NoGradGuard no_grad;
  for (auto& piece : pieces_) piece.buffers.gradients.mul_(1 / scale);
}

void TrainingState::start_epoch(bool carries_accumulation) {
  before_change();
  if (!carries_accumulation) accumulated_.zero_();
  counters.meter = {};
}

bool TrainingState::is_optimizer_step(const CommitArguments& arguments) const {
  return optim::is_optimizer_step(arguments.step, counters.last_optimizer_step,
                                  arguments.settings.accumulate);
}

optim::OptimizerStep TrainingState::optimizer_step(
    const CommitArguments& arguments) const {
  optim::OptimizerStep step;
  for (size_t group = 0; group < step.groups.size(); ++group) {
    step.groups[group].lr = arguments.settings.lr[group];
  }
  step.groups[optim::kWeightGroup].weight_decay = arguments.weight_decay;
  step.momentum = arguments.settings.momentum;
  step.clip_coefficient = optim::clip_coefficient(arguments.gradient_norm);
  step.step = counters.optimizer_steps + 1;
  return step;
}

at::Tensor TrainingState::commit_numbers(const CommitArguments& arguments,
                                         bool may_commit) const {
  kernels::CommitNumbers numbers;
  numbers.ends_step = true;
  numbers.may_commit = may_commit;
  numbers.steps_optimizer = is_optimizer_step(arguments);
  numbers.gradient_scale = gradient_scale_;
  numbers.num_groups = static_cast<double>(arguments.num_groups);
  return DeviceState::packed(numbers, options_.optimizer,
                             optimizer_step(arguments));
}

void TrainingState::end_on_device(const at::Tensor& numbers,
                                  const at::Tensor& items,
                                  const DeviceState::Peers& peers) {
  const at::NoGradGuard no_grad;
  device_state_->measure(numbers, items, peers);
  device_state_->apply(numbers);
  // If nothing was committed, this copies the same weights again.
  renew_compute_weights();
}

bool TrainingState::note_commit(const CommitArguments& arguments) {
  const bool optimizer_stepped = is_optimizer_step(arguments);
  if (optimizer_stepped) {
    ++counters.optimizer_steps;
    counters.last_optimizer_step = arguments.step;
  }
  counters.committed_steps = arguments.step + 1;
  return optimizer_stepped;
}

bool TrainingState::commit(const CommitArguments& arguments) {
  at::NoGradGuard no_grad;
  begin_step_phase(StepPhase::kCommit);
  before_change();
  is_torn_ = true;
  if (device_state_ != nullptr) {
    device_state_->commit_as_voted(
        optim::clip_coefficient(arguments.gradient_norm));
    device_state_->apply(
        device_state_->upload(commit_numbers(arguments, /*may_commit=*/true)));
  } else {
    commit_on_host(arguments);
  }
  if (is_optimizer_step(arguments)) {
    gather_parameters();
    renew_compute_weights();
  }
  const bool optimizer_stepped = note_commit(arguments);
  is_torn_ = false;
  begin_step_phase(StepPhase::kNone);
  return optimizer_stepped;
}

void TrainingState::commit_on_host(const CommitArguments& arguments) {
  for (const auto& [flat, segments] : pieces_) {
    optim::add_in_place(flat.accumulated, flat.gradients);
  }
  move_running_statistics(arguments.num_groups);
  if (!is_optimizer_step(arguments)) return;
  const optim::OptimizerStep step = optimizer_step(arguments);
  for (const auto& [flat, segments] : pieces_) {
    const at::Tensor moments[] = {flat.first, flat.second};
    optim::optimizer_step(options_.optimizer, step, flat.parameters,
                          flat.accumulated,
                          std::span(moments).first(moments_.size()), segments);
    optim::ema_update(flat.average, flat.parameters, step.step);
  }
  accumulated_.zero_();
  optim::ema_update(average_statistics_->values(), statistics_->values(),
                    step.step);
}

void TrainingState::commit_without_update(int64_t step) {
  counters.committed_steps = step + 1;
}

void TrainingState::move_running_statistics(int64_t num_groups) {
  const double* sums = batch_norm_sums_.const_data_ptr<double>();
  for (const model::LayerGraph::BatchNorm& norm : model_->batch_norms()) {
    AT_DISPATCH_FLOATING_TYPES(
        norm.running_mean->scalar_type(), "running_statistics", [&] {
          const double* mean = sums + norm.sums_offset;
          move_running_statistic<scalar_t>(*norm.running_mean, mean,
                                           norm.channels, num_groups);
          move_running_statistic<scalar_t>(*norm.running_var,
                                           mean + norm.channels, norm.channels,
                                           num_groups);
        });
  }
}

// Under ZeRO 1 and 2 a commit changes only a rank's own slices of the weights,
// so the slices are gathered.
void TrainingState::gather_parameters() {
  if (!slices_.rest || slices_.weights) return;
  std::vector<int64_t> sizes;
  for (int64_t layer = 0; layer < shards_->num_layers(); ++layer) {
    sizes.push_back(shards_->slice_size(layer));
  }
  options_.mesh->data->all_gather_pieces(parameters_->values(), sizes);
  // Waits until the weights have arrived: on a device a lost peer would
  // otherwise be noticed only after the commit.
  options_.mesh->data->synchronize();
}

void TrainingState::reset_average() {
  at::NoGradGuard no_grad;
  before_change();
  for (const auto& [flat, segments] : pieces_) {
    flat.average.copy_(flat.parameters);
  }
  average_statistics_->values().copy_(statistics_->values());
}

bool TrainingState::is_whole() const {
  return !slices_.rest && (options_.mesh == nullptr ||
                           options_.mesh->layout.pipeline_parallel_size == 1);
}

}  // namespace headroom::step
