// A chain of small dense layers, each a row of its own, run the way a sharded
// model is: use a row, compute, be done with it, use it again in backward.
#pragma once

#include <ATen/ATen.h>
#include <torch/csrc/autograd/custom_function.h>

#include <memory>
#include <string>
#include <vector>

#include "parallel/data_parallel/arena.h"
#include "parallel/zero/sharded_rows.h"

namespace headroom::zero {

inline constexpr int kLayers = 5;
inline constexpr int64_t kWidth = 13;  // no multiple of anything

// The identity; its backward gathers the layer.
struct UseAgain : torch::autograd::Function<UseAgain> {
  static at::Tensor forward(torch::autograd::AutogradContext* context,
                            const at::Tensor& x, ShardedRows* rows,
                            int64_t row) {
    context->saved_data["rows"] = reinterpret_cast<int64_t>(rows);
    context->saved_data["row"] = row;
    return x;
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext* context,
      torch::autograd::variable_list gradients) {
    reinterpret_cast<ShardedRows*>(context->saved_data["rows"].toInt())
        ->use(context->saved_data["row"].toInt());
    return {gradients[0], at::Tensor(), at::Tensor()};
  }
};

struct LocalFailure {};

// The identity; its backward fails.
struct FailInBackward : torch::autograd::Function<FailInBackward> {
  static at::Tensor forward(torch::autograd::AutogradContext*,
                            const at::Tensor& x) {
    return x;
  }
  static torch::autograd::variable_list backward(
      torch::autograd::AutogradContext*, torch::autograd::variable_list) {
    throw LocalFailure();
  }
};

struct LayeredNetwork {
  std::vector<at::Tensor> weights, biases;
  std::unique_ptr<data_parallel::Arena> arena;
  std::unique_ptr<ShardMap> map;
  std::unique_ptr<ShardedRows> rows;

  // Undivided, or over the ranks of a communicator: ZeRO 2 or 3. The first
  // `frozen` layers do not learn.
  explicit LayeredNetwork(collectives::Communicator* ranks = nullptr,
                          int zero_stage = 0,
                          collectives::Communicator* copies = nullptr,
                          int frozen = 0) {
    data_parallel::ArenaOptions options;
    options.scalar_type = at::kDouble;
    options.with_gradients = true;
    options.row_parts = ranks == nullptr ? 1 : ranks->size();
    options.values_apart = zero_stage == 3;
    options.gradients_apart = zero_stage >= 2;
    for (int i = 0; i < kLayers; ++i) {
      const at::Tensor index =
          at::arange(kWidth * kWidth, at::kDouble) * (i + 1);
      weights.push_back(at::sin(index).view({kWidth, kWidth}) / 3);
      biases.push_back(at::cos(at::arange(kWidth, at::kDouble) + i));
    }
    std::vector<data_parallel::ArenaEntry> entries;
    for (int i = 0; i < kLayers; ++i) {
      entries.push_back({"weight " + std::to_string(i), &weights[i], i});
      entries.push_back({"bias " + std::to_string(i), &biases[i], i});
    }
    arena = std::make_unique<data_parallel::Arena>(std::move(entries), options);
    for (int i = 0; i < frozen; ++i) {
      weights[i].set_requires_grad(false);
      biases[i].set_requires_grad(false);
    }
    std::vector<int64_t> sizes;
    for (const data_parallel::Arena::Row& row : arena->rows())
      sizes.push_back(row.size);
    map = std::make_unique<ShardMap>(sizes, options.row_parts, 8);
    if (zero_stage < 2) return;
    std::vector<ShardedRows::Row> sharded;
    for (int i = 0; i < kLayers; ++i) {
      ShardedRows::Row row;
      if (zero_stage == 3) row.values = arena->row_values(i);
      row.gradients.gradients = arena->row_gradients(i);
      if (i >= frozen) row.gradients.parameters = {weights[i], biases[i]};
      sharded.push_back(std::move(row));
    }
    single = collectives::make_single_communicator();
    rows = std::make_unique<ShardedRows>(*map, std::move(sharded), *ranks,
                                         copies ? *copies : *single);
  }

  // Fails in layer `fails_forward`, or where backward leaves `fails_backward`.
  at::Tensor loss(const at::Tensor& input, int fails_forward = -1,
                  int fails_backward = -1) {
    at::Tensor x = input;
    if (rows) rows->begin_forward();
    for (int i = 0; i < kLayers; ++i) {
      if (rows) rows->use(i);
      if (i == fails_forward) throw LocalFailure();
      if (i == fails_backward) x = FailInBackward::apply(x);
      x = at::tanh(at::matmul(x, weights[i]) + biases[i]);
      if (rows) rows->done_with(i);
      if (rows && x.requires_grad()) x = UseAgain::apply(x, rows.get(), i);
    }
    return at::mul(x, x).sum();
  }

  void train(const at::Tensor& input) {
    const at::Tensor value = loss(input);
    if (rows) rows->begin_backward();
    value.backward();
  }

  std::unique_ptr<collectives::Communicator> single;
};

// Row `part` of `parts` of one global batch; may be empty.
inline at::Tensor network_input(int64_t begin, int64_t end) {
  return at::sin(at::arange(begin * kWidth, end * kWidth, at::kDouble) * 0.37)
      .view({end - begin, kWidth});
}

}  // namespace headroom::zero
