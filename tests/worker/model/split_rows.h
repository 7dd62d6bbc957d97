// A layer of the model table on whole maps, and on maps whose rows are split
// over ranks that are threads: shared by the tests of exactness.
//
// Float64; weights are filled by name, so that all ranks hold the same.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "parallel/collectives/counting_communicator.h"
#include "parallel/data_parallel/communicator_exchange.h"
#include "parallel/spatial/halo_exchange.h"
#include "tests/support/parity.h"
#include "tests/support/run_ranks.h"
#include "worker/model/layer_factory.h"
#include "worker/model/model_state.h"

namespace headroom::model {

using MakeLayer = std::function<std::unique_ptr<Layer>(ModelState&)>;

// A layer of `module`, built from a table that has no other layer and no
// scaling.
inline MakeLayer module_layer(
    const std::string& module, int64_t channels,
    std::vector<layers::ModelTable::Argument> args, int repeats = 1,
    const layers::ActivationFunction& activation = {}) {
  layers::ModelTable table;
  table.channel_multiple = 1;
  table.activation = activation;
  table.layers = {{{-1}, repeats, module, std::move(args), {}}};
  return [table, channels](ModelState& state) {
    return std::move(build_layer(table, 0, {{channels, 8}}, 1, state).layer);
  };
}

struct SplitCase {
  MakeLayer make;
  int64_t channels = 1;
  int64_t blocks = 1;
  int64_t rows_per_block = 1;  // rows of the layer's input in a block
  int64_t width = 1;
  int ranks = 1;
  std::vector<int64_t> group_sizes = {2};

  int64_t samples() const {
    int64_t total = 0;
    for (const int64_t size : group_sizes) total += size;
    return total;
  }
  spatial::ImageSplit partition() const { return {blocks * 32, 32, ranks}; }
};

// The layer with its state.
struct BuiltMapLayer {
  explicit BuiltMapLayer(const MakeLayer& make) : state(at::kDouble, 0) {
    layer = make(state);
    fill_model(state.tensors());
    for (const NamedTensor& entry : state.tensors())
      if (entry.is_parameter()) entry.tensor->requires_grad_(true);
  }
  std::vector<at::Tensor> gradients() const {
    std::vector<at::Tensor> all;
    for (const NamedTensor& entry : state.tensors())
      if (entry.is_parameter()) all.push_back(entry.tensor->grad());
    return all;
  }

  ModelState state;
  std::unique_ptr<Layer> layer;

  at::Tensor apply(const at::Tensor& x, const StepContext& context) {
    return layer->forward({x}, context).front();
  }
};

struct LayerOutcome {
  at::Tensor out, dx, batch_norm_sums;
  std::vector<at::Tensor> gradients;  // the parameters' gradients
};

inline at::Tensor map_leaf(const at::Tensor& values) {
  return values.detach()
      .clone()
      .contiguous(at::MemoryFormat::ChannelsLast)
      .requires_grad_();
}

inline at::Tensor whole_input(const SplitCase& c) {
  at::manual_seed(5);
  return at::randn(
      {c.samples(), c.channels, c.blocks * c.rows_per_block, c.width},
      at::kDouble);
}

// The weights of the output in the loss.
inline at::Tensor output_weights(const at::Tensor& out) {
  at::manual_seed(6);
  return at::randn(out.sizes(), out.options());
}

inline StepContext whole_context(const SplitCase& c, const ModelState& state) {
  StepContext context;
  context.training = true;
  int64_t begin = 0;
  for (const int64_t size : c.group_sizes) {
    context.groups.push_back({begin, begin + size, size, true});
    begin += size;
  }
  context.batch_norm_sums =
      at::zeros({state.batch_norm_sums_size()}, at::kDouble);
  return context;
}

inline LayerOutcome run_whole(const SplitCase& c) {
  at::set_num_threads(1);
  BuiltMapLayer built(c.make);
  const StepContext context = whole_context(c, built.state);
  const at::Tensor x = map_leaf(whole_input(c));
  const at::Tensor out = built.apply(x, context);
  out.backward(output_weights(out));
  return {out.detach(), x.grad(), context.batch_norm_sums, built.gradients()};
}

// The communicators and the context of one rank.
struct SplitRank {
  SplitRank(const SplitCase& c, collectives::Communicator& communicator,
            const ModelState& state)
      : ranks(communicator.split(0, communicator.rank())),
        exchange(ranks),
        halo(ranks, c.partition()),
        context(whole_context(c, state)) {
    context.exchange = &exchange;
    context.halo = &halo;
    for (BatchNormGroup& group : context.groups)
      group.counts_here = ranks.rank() == ranks.size() - 1;
  }
  // The rank's rows of a whole map.
  at::Tensor own(const at::Tensor& whole, const SplitCase& c) const {
    const spatial::RowRange rows =
        c.partition().rows_of(ranks.rank(), whole.size(2) / c.blocks);
    return whole.narrow(2, rows.begin, rows.size());
  }

  collectives::CountingCommunicator ranks;
  data_parallel::CommunicatorExchange exchange;
  spatial::CommunicatorHaloExchange halo;
  StepContext context;
};

// Joins the outputs and dx of all ranks, and adds up their gradients and sums.
inline LayerOutcome join_ranks(const std::vector<LayerOutcome>& parts) {
  LayerOutcome whole = parts.front();
  std::vector<at::Tensor> outs, dxs;
  for (size_t rank = 0; rank < parts.size(); ++rank) {
    outs.push_back(parts[rank].out);
    dxs.push_back(parts[rank].dx);
    if (rank == 0) continue;
    whole.batch_norm_sums = whole.batch_norm_sums + parts[rank].batch_norm_sums;
    for (size_t i = 0; i < whole.gradients.size(); ++i)
      whole.gradients[i] = whole.gradients[i] + parts[rank].gradients[i];
  }
  whole.out = at::cat(outs, 2);
  whole.dx = at::cat(dxs, 2);
  return whole;
}

inline LayerOutcome run_split(const SplitCase& c, const at::Tensor& whole_out) {
  const at::Tensor x = whole_input(c), dout = output_weights(whole_out);
  std::vector<LayerOutcome> parts(static_cast<size_t>(c.ranks));
  run_ranks(c.ranks, [&](int rank, collectives::Communicator& communicator) {
    BuiltMapLayer built(c.make);
    SplitRank here(c, communicator, built.state);
    const at::Tensor own = map_leaf(here.own(x, c));
    const at::Tensor out = built.apply(own, here.context);
    out.backward(here.own(dout, c));
    parts[static_cast<size_t>(rank)] = {out.detach(), own.grad(),
                                        here.context.batch_norm_sums,
                                        built.gradients()};
  });
  return join_ranks(parts);
}

// Largest difference, relative to the largest expected value.
inline double largest_difference(const at::Tensor& actual,
                                 const at::Tensor& expected) {
  if (!actual.defined() || actual.sizes() != expected.sizes()) return INFINITY;
  if (expected.numel() == 0) return 0;
  return (actual - expected).abs().max().item<double>() /
         std::max(expected.abs().max().item<double>(), 1e-30);
}

}  // namespace headroom::model
