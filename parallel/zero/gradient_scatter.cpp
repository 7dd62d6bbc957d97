#include "parallel/zero/gradient_scatter.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/function_hook.h>
#include <torch/csrc/autograd/variable.h>

#include <string>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/memory_category.h"
#include "parallel/zero/row_memory.h"

namespace headroom::zero {

// Outlives the scatter in the hooks, which then find it inactive.
struct GradientScatter::State {
  State(const ShardMap& of_rows, collectives::Communicator& sharing,
        collectives::Communicator& copying,
        std::function<void(int64_t)> when_final)
      : map(of_rows),
        ranks(sharing),
        copies(copying),
        on_final(std::move(when_final)) {}

  ShardMap map;
  collectives::Communicator& ranks;
  collectives::Communicator& copies;
  std::function<void(int64_t)> on_final;
  std::vector<Row> rows;
  at::Tensor shard;
  at::Tensor received;  // of the largest slice
  bool active = true;
  std::vector<size_t> num_missing;  // per row, in this backward

  const at::Tensor& gradients(int64_t row) const {
    return rows.at(static_cast<size_t>(row)).gradients;
  }
  // The buffer, with zeros where it is new.
  void provide(int64_t row) {
    if (has_memory(gradients(row))) return;
    restore_memory(gradients(row));
    gradients(row).zero_();
  }
  void reduce(int64_t row);
};

void GradientScatter::State::reduce(int64_t row) {
  const at::NoGradGuard no_grad;
  const int64_t size = map.slice_size(row);
  const at::Tensor slice = received.narrow(0, 0, size);
  ranks.reduce_scatter(slice, gradients(row));
  release_memory(gradients(row));
  if (copies.size() > 1) copies.all_reduce(slice);
  shard.narrow(0, map.shard_offset(row), size).add_(slice);
}

// Before autograd adds to .grad, whose memory is not there between backwards.
class GradientScatter::FirstUse final
    : public torch::autograd::FunctionPreHook {
 public:
  FirstUse(std::shared_ptr<State> state, int64_t row)
      : state_(std::move(state)), row_(row) {}
  torch::autograd::variable_list operator()(
      const torch::autograd::variable_list& gradients) override {
    if (state_->active) state_->provide(row_);
    return gradients;
  }

 private:
  std::shared_ptr<State> state_;
  const int64_t row_;
};

class GradientScatter::Accumulated final
    : public torch::autograd::PostAccumulateGradHook {
 public:
  Accumulated(std::shared_ptr<State> state, int64_t row)
      : state_(std::move(state)), row_(row) {}
  void operator()(const at::Tensor& parameter) override {
    if (!state_->active) return;
    HEADROOM_CHECK(parameter.grad().is_alias_of(state_->gradients(row_)),
                   "a gradient of row " + std::to_string(row_) +
                       " has left the row's buffer");
    size_t& missing = state_->num_missing.at(static_cast<size_t>(row_));
    HEADROOM_CHECK(missing > 0, "a second backward after one begin_backward()");
    if (--missing == 0) state_->on_final(row_);
  }

 private:
  std::shared_ptr<State> state_;
  const int64_t row_;
};

GradientScatter::GradientScatter(const ShardMap& map, std::vector<Row> rows,
                                 collectives::Communicator& ranks,
                                 collectives::Communicator& copies,
                                 std::function<void(int64_t)> on_final)
    : state_(std::make_shared<State>(map, ranks, copies, std::move(on_final))) {
  HEADROOM_CHECK(map.num_ranks() == ranks.size() &&
                     map.num_rows() == static_cast<int64_t>(rows.size()),
                 std::to_string(rows.size()) + " rows, " +
                     std::to_string(ranks.size()) + " ranks");
  State& state = *state_;
  state.rows = std::move(rows);
  state.num_missing.resize(state.rows.size());
  if (state.rows.empty()) return;
  const auto options = state.rows.front().gradients.options();
  {
    const MemoryCategoryScope scope(MemoryCategory::kGradients);
    state.shard = at::zeros({map.shard_size()}, options);
  }
  const MemoryCategoryScope scope(MemoryCategory::kCommunication);
  state.received = at::empty({map.largest_slice()}, options);
  for (size_t row = 0; row < state.rows.size(); ++row) {
    const auto index = static_cast<int64_t>(row);
    HEADROOM_CHECK(
        state.rows[row].gradients.numel() == map.padded_row_size(index),
        "row " + std::to_string(row));
    release_memory(state.rows[row].gradients);
    for (const at::Tensor& parameter : state.rows[row].parameters) {
      torch::autograd::impl::add_hook(
          parameter, std::make_unique<FirstUse>(state_, index));
      torch::autograd::impl::set_post_acc_grad_hooks(
          parameter, std::make_unique<Accumulated>(state_, index));
    }
  }
}

// The parameters' hooks keep the state, and must not keep themselves with it.
GradientScatter::~GradientScatter() {
  state_->active = false;
  state_->on_final = nullptr;
  state_->rows.clear();
  state_->shard.reset();
  state_->received.reset();
}

at::Tensor& GradientScatter::shard() { return state_->shard; }

void GradientScatter::begin_backward() {
  for (size_t row = 0; row < state_->rows.size(); ++row) {
    state_->num_missing[row] = state_->rows[row].parameters.size();
  }
}

void GradientScatter::reduce(int64_t row) { state_->reduce(row); }

void GradientScatter::reduce_zeros(int64_t row) {
  state_->provide(row);
  state_->gradients(row).zero_();
  state_->reduce(row);
}

void GradientScatter::release_all() {
  for (const Row& row : state_->rows) {
    if (has_memory(row.gradients)) release_memory(row.gradients);
  }
}

}  // namespace headroom::zero
