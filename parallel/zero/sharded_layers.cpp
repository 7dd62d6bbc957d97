#include "parallel/zero/sharded_layers.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <string>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/memory_category.h"
#include "parallel/base/text.h"

namespace headroom::zero {

// The state that the hooks share. It outlives the GradientScatter, and is then
// inactive.
struct GradientScatter::State {
  State(const ShardMap& of_layers, collectives::Communicator& sharing,
        collectives::Communicator& copying,
        std::function<void(int64_t)> when_final)
      : map(of_layers),
        ranks(sharing),
        copies(copying),
        on_final(std::move(when_final)) {}

  ShardMap map;
  collectives::Communicator& ranks;
  collectives::Communicator& copies;
  std::function<void(int64_t)> on_final;
  std::vector<Layer> layers;
  at::Tensor shard;
  at::Tensor received;  // buffer for this rank's slice of the sum
  bool active = true;
  std::vector<size_t> num_missing;  // for each layer: gradients not final yet

  const at::Tensor& gradients(int64_t layer) const {
    return layers.at(static_cast<size_t>(layer)).gradients;
  }
  // Makes sure the layer's buffer has memory; new memory is zeroed.
  void provide(int64_t layer) {
    if (has_memory(gradients(layer))) return;
    restore_memory(gradients(layer));
    gradients(layer).zero_();
  }
  void reduce(int64_t layer);
};

void GradientScatter::State::reduce(int64_t layer) {
  const at::NoGradGuard no_grad;
  const int64_t size = map.slice_size(layer);
  const at::Tensor slice = received.narrow(0, 0, size);
  ranks.reduce_scatter(slice, gradients(layer));
  release_memory(gradients(layer));
  if (copies.size() > 1) copies.all_reduce(slice);
  shard.narrow(0, map.shard_offset(layer), size).add_(slice);
}

// Allocates the layer's gradient buffer before autograd adds to .grad. The
// buffer has no memory between backwards.
class GradientScatter::FirstUse final
    : public torch::autograd::FunctionPreHook {
 public:
  FirstUse(std::shared_ptr<State> state, int64_t layer)
      : state_(std::move(state)), layer_(layer) {}
  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& gradients) override {
    if (state_->active) state_->provide(layer_);
    return gradients;
  }

 private:
  std::shared_ptr<State> state_;
  const int64_t layer_;
};

class GradientScatter::Accumulated final
    : public torch::autograd::PostAccumulateGradHook {
 public:
  Accumulated(std::shared_ptr<State> state, int64_t layer)
      : state_(std::move(state)), layer_(layer) {}
  void operator()(const at::Tensor& parameter) override {
    if (!state_->active) return;
    HEADROOM_CHECK(
        parameter.grad().is_alias_of(state_->gradients(layer_)),
        cat("a gradient of layer ", layer_, " has left the layer's buffer"));
    size_t& missing = state_->num_missing.at(static_cast<size_t>(layer_));
    HEADROOM_CHECK(missing > 0, "a second backward after one begin_backward()");
    if (--missing == 0) state_->on_final(layer_);
  }

 private:
  std::shared_ptr<State> state_;
  const int64_t layer_;
};

GradientScatter::GradientScatter(const ShardMap& map, std::vector<Layer> layers,
                                 collectives::Communicator& ranks,
                                 collectives::Communicator& copies,
                                 std::function<void(int64_t)> on_final)
    : state_(std::make_shared<State>(map, ranks, copies, std::move(on_final))) {
  HEADROOM_CHECK(map.num_ranks() == ranks.size() &&
                     map.num_layers() == static_cast<int64_t>(layers.size()),
                 cat(layers.size(), " layers, ", ranks.size(), " ranks"));
  State& state = *state_;
  state.layers = std::move(layers);
  state.num_missing.resize(state.layers.size());
  if (state.layers.empty()) return;
  const auto options = state.layers.front().gradients.options();
  {
    const MemoryCategoryScope scope(MemoryCategory::kGradients);
    state.shard = at::zeros({map.shard_size()}, options);
  }
  const MemoryCategoryScope scope(MemoryCategory::kCommunication);
  state.received = at::empty({map.largest_slice()}, options);
  for (size_t layer = 0; layer < state.layers.size(); ++layer) {
    const auto index = static_cast<int64_t>(layer);
    HEADROOM_CHECK(
        state.layers[layer].gradients.numel() == map.padded_layer_size(index),
        cat("layer ", layer));
    release_memory(state.layers[layer].gradients);
    for (const at::Tensor& parameter : state.layers[layer].parameters) {
      torch::autograd::impl::add_hook(
          parameter, std::make_unique<FirstUse>(state_, index));
      torch::autograd::impl::set_post_acc_grad_hooks(
          parameter, std::make_unique<Accumulated>(state_, index));
    }
  }
}

// The parameters' hooks keep the state alive, so the state must drop its
// references to the parameters.
GradientScatter::~GradientScatter() {
  state_->active = false;
  state_->on_final = nullptr;
  state_->layers.clear();
  state_->shard.reset();
  state_->received.reset();
}

at::Tensor& GradientScatter::shard() { return state_->shard; }

void GradientScatter::begin_backward() {
  for (size_t layer = 0; layer < state_->layers.size(); ++layer) {
    state_->num_missing[layer] = state_->layers[layer].parameters.size();
  }
}

void GradientScatter::reduce(int64_t layer) { state_->reduce(layer); }

void GradientScatter::release_all() {
  for (const Layer& layer : state_->layers) {
    if (has_memory(layer.gradients)) release_memory(layer.gradients);
  }
}

using Kind = LayerCollective::Kind;

ShardedLayers::ShardedLayers(const ShardMap& map, std::vector<Layer> layers,
                             collectives::Communicator& ranks,
                             collectives::Communicator& copies)
    : fetches_ahead_(ranks.gathers_in_background()) {
  std::vector<at::Tensor> values;
  std::vector<GradientScatter::Layer> gradients;
  std::vector<int64_t> all, learning;
  for (Layer& layer : layers) {
    const auto index = static_cast<int64_t>(all.size());
    all.push_back(index);
    if (!layer.gradients.parameters.empty()) learning.push_back(index);
    if (layer.values.defined()) values.push_back(std::move(layer.values));
    gradients.push_back(std::move(layer.gradients));
  }
  if (!values.empty()) {
    values_ = std::make_unique<LayerGather>(map, std::move(values), ranks);
    forward_ = forward_list(all);
  }
  backward_ = backward_list(learning, !shards_values() ? Gathers::kNone
                                      : fetches_ahead_ ? Gathers::kAhead
                                                       : Gathers::kInTurn);
  gradients_ = std::make_unique<GradientScatter>(
      map, std::move(gradients), ranks, copies,
      [this](int64_t layer) { on_final(layer); });
}

void ShardedLayers::begin_step() {
  if (gradient_shard().defined()) gradient_shard().zero_();
}

void ShardedLayers::begin_forward() { cursor_.begin(forward_); }

void ShardedLayers::begin_backward() {
  cursor_.begin(backward_);
  gradients_->begin_backward();
}

void ShardedLayers::use(int64_t layer) {
  if (!shards_values()) return;
  const LayerCollective gather{Kind::kGather, layer};
  if (fetch_ && cursor_.next_is(gather)) finish_fetch();
  if (!values_->is_whole(layer)) {
    HEADROOM_CHECK(cursor_.next_is(gather), to_string(gather) + " out of turn");
    // If gather() runs out of memory, the cursor does not advance.
    values_->gather(layer);
    cursor_.pass(gather);
  }
  fetch_next();
}

void ShardedLayers::fetch_next() {
  if (!fetches_ahead_ || fetch_ || cursor_.done()) return;
  const LayerCollective next = cursor_.next();
  if (next.kind == Kind::kGather) fetch_ = values_->begin_gather(next.layer);
}

void ShardedLayers::finish_fetch() {
  if (!fetch_) return;
  std::exchange(fetch_, nullptr)->wait();
  cursor_.pass(cursor_.next());
}

void ShardedLayers::done_with(int64_t layer) {
  if (shards_values()) values_->release(layer);
}

void ShardedLayers::on_final(int64_t layer) {
  finish_fetch();
  cursor_.pass({Kind::kScatter, layer});
  // Released before reduce(), so that the backend can use this memory as
  // scratch.
  done_with(layer);
  gradients_->reduce(layer);
}

void ShardedLayers::abandon() {
  cursor_ = {};
  fetch_.reset();
  gradients_->release_all();
  if (!shards_values()) return;
  for (int64_t layer = 0; layer < static_cast<int64_t>(forward_.size());
       ++layer) {
    if (values_->is_whole(layer)) values_->release(layer);
  }
}

}  // namespace headroom::zero
