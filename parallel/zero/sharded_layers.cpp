#include "parallel/zero/sharded_layers.h"

#include <string>
#include <utility>

#include "parallel/base/check.h"

namespace headroom::zero {

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
    values_->gather(
        layer);  // may run out of memory, and is then still to be done
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
  done_with(layer);  // first: a backend's scratch then takes its place
  gradients_->reduce(layer);
}

void ShardedLayers::complete_next() {
  const LayerCollective next = cursor_.next();
  if (fetch_) {
    finish_fetch();
  } else {
    cursor_.pass(next);
    if (next.kind == Kind::kScatter) {
      gradients_->reduce_zeros(next.layer);
    } else {
      // A layer's gather fails, if at all, before its memory is there.
      values_->gather(next.layer);
    }
  }
  if (shards_values() && values_->is_whole(next.layer)) {
    values_->release(next.layer);
  }
}

void ShardedLayers::complete_pass() {
  while (!cursor_.done()) complete_next();
  gradients_->release_all();
  if (!shards_values()) return;
  for (int64_t layer = 0; layer < static_cast<int64_t>(forward_.size());
       ++layer) {
    if (values_->is_whole(layer)) values_->release(layer);
  }
}

}  // namespace headroom::zero
