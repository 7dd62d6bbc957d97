#include "worker/more_tools/channel_pruning.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <utility>

#include "configs/layers/layer_cost.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "worker/kernels/element_math.h"
#include "worker/more_tools/channel_graph.h"

namespace headroom::tools {
namespace {

constexpr int64_t kLeastKept = 4;  // a unit keeps at least 1 channel in 4

using State = std::map<std::string, at::Tensor>;

State state_of(model::LayerGraph& model) {
  State state;
  for (const model::NamedTensor& entry : model.state()) {
    state[entry.name] = *entry.tensor;
  }
  return state;
}

// The score of each channel of each unit: the largest |scale| in the
// convolutions that write it.
std::vector<std::vector<double>> scores_of(const ChannelGraph& graph,
                                           const State& state) {
  std::vector<std::vector<double>> scores;
  for (const ChannelGraph::Unit& unit : graph.units) {
    scores.emplace_back(static_cast<size_t>(unit.channels), 0);
  }
  for (const ChannelGraph::Convolution& convolution : graph.convolutions) {
    const at::Tensor scale =
        state.at(convolution.name + "bn.weight").to(at::kDouble).contiguous();
    const double* next = scale.const_data_ptr<double>();
    for (const int unit : convolution.units) {
      for (double& score : scores[static_cast<size_t>(unit)]) {
        score = std::max(score, std::abs(*next++));
      }
    }
  }
  return scores;
}

// How many of a unit's `marked` channels can be removed so that the number of
// remaining channels is a multiple of `multiple`.
int64_t removable(int64_t channels, int64_t marked, int64_t multiple) {
  const int64_t least = std::max<int64_t>(1, divided_up(channels, kLeastKept));
  const int64_t kept = std::max(channels - marked, least);
  return channels - std::min(channels, round_up(kept, multiple));
}

// How many channels of each unit are removed.
std::vector<int64_t> choose(const ChannelGraph& graph,
                            const std::vector<std::vector<double>>& scores,
                            double share, int64_t multiple) {
  struct Candidate {
    double score;
    size_t unit;
  };
  std::vector<Candidate> candidates;
  int64_t total = 0;
  for (size_t unit = 0; unit < scores.size(); ++unit) {
    for (const double score : scores[unit]) candidates.push_back({score, unit});
    total += graph.units[unit].channels;
  }
  std::stable_sort(
      candidates.begin(), candidates.end(),
      [](const auto& a, const auto& b) { return a.score < b.score; });
  const auto wanted =
      static_cast<int64_t>(std::ceil(share * static_cast<double>(total)));
  std::vector<int64_t> marked(scores.size(), 0), removed(scores.size(), 0);
  int64_t num_removed = 0;
  for (const Candidate& candidate : candidates) {
    if (num_removed >= wanted) return removed;
    const int64_t now = removable(graph.units[candidate.unit].channels,
                                  ++marked[candidate.unit], multiple);
    num_removed += now - std::exchange(removed[candidate.unit], now);
  }
  if (num_removed >= wanted) return removed;
  throw Error(
      "prune",
      cat(wanted, " of ", total, " channels should go, but only ", num_removed,
          " can: every convolution "
          "keeps a quarter of its own, in multiples of ",
          multiple),
      cat("give --share ",
          std::to_string(static_cast<double>(num_removed * 100 /
                                             std::max<int64_t>(1, total)) /
                         100)
              .substr(0, 4),
          " or less"));
}

// The channels that are kept, ascending, and those that are removed.
struct Split {
  at::Tensor kept, gone;
};

Split split_of(const std::vector<double>& scores, int64_t num_removed) {
  std::vector<int64_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return scores[static_cast<size_t>(a)] < scores[static_cast<size_t>(b)];
  });
  const auto middle = order.begin() + num_removed;
  std::sort(order.begin(), middle);
  std::sort(middle, order.end());
  const auto indices = [](auto begin, auto end) {
    std::vector<int64_t> values(begin, end);
    return at::from_blob(values.data(), {static_cast<int64_t>(values.size())},
                         at::kLong)
        .clone();
  };
  return {indices(middle, order.end()), indices(order.begin(), middle)};
}

class Pruner {
 public:
  Pruner(const ChannelGraph& graph, const State& before,
         std::vector<Split> splits)
      : graph_(graph), before_(before), splits_(std::move(splits)) {}

  // Returns the state of the pruned model.
  State run() {
    State after = before_;
    for (const ChannelGraph::Reader& reader : graph_.readers) {
      read_less(reader, after);
    }
    for (const auto& convolution : graph_.convolutions) {
      const at::Tensor kept = kept_of(convolution);
      for (const char* name : {"conv.weight", "bn.weight", "bn.bias",
                               "bn.running_mean", "bn.running_var"}) {
        at::Tensor& tensor = after.at(convolution.name + name);
        tensor = tensor.index_select(0, kept);
      }
    }
    return after;
  }

 private:
  const Split& split_of_unit(int unit) const {
    return splits_[static_cast<size_t>(unit)];
  }

  // The indices of the channels that a convolution keeps.
  at::Tensor kept_of(const ChannelGraph::Convolution& convolution) const {
    std::vector<at::Tensor> kept;
    int64_t begin = 0;
    for (const int unit : convolution.units) {
      kept.push_back(split_of_unit(unit).kept.add(begin));
      begin += graph_.units[static_cast<size_t>(unit)].channels;
    }
    return at::cat(kept);
  }

  // The constants that replace a segment's channels.
  at::Tensor constants(const ChannelGraph::Segment& segment) const {
    at::Tensor sum = at::zeros({segment.channels}, at::kDouble);
    for (const ChannelGraph::Part& part : segment.sum) {
      const ChannelGraph::Convolution& writer =
          graph_.convolutions[part.convolution];
      const at::Tensor offsets =
          before_.at(writer.name + "bn.bias")
              .narrow(0, part.first_channel, segment.channels)
              .to(at::kDouble)
              .clone();
      double* values = offsets.mutable_data_ptr<double>();
      for (int64_t c = 0; c < segment.channels; ++c) {
        values[c] = kernels::activated(values[c], writer.activation);
      }
      sum = sum.add(offsets);
    }
    return sum;
  }

  void read_less(const ChannelGraph::Reader& reader, State& after) const {
    at::Tensor& weight =
        after.at(reader.name + (reader.normed ? "conv.weight" : "weight"));
    std::vector<at::Tensor> kept;
    at::Tensor constant = at::zeros({weight.size(0)}, at::kDouble);
    int64_t begin = 0;
    for (const ChannelGraph::Segment& segment : reader.input) {
      const at::Tensor columns = weight.narrow(1, begin, segment.channels);
      begin += segment.channels;
      if (segment.unit == ChannelGraph::kImages) {
        kept.push_back(columns);
        continue;
      }
      const Split& split = split_of_unit(segment.unit);
      kept.push_back(columns.index_select(1, split.kept));
      constant = constant.add(
          columns.index_select(1, split.gone)
              .to(at::kDouble)
              .sum(at::IntArrayRef{2, 3})
              .matmul(constants(segment).index_select(0, split.gone)));
    }
    weight = at::cat(kept, 1);
    at::Tensor& offset =
        after.at(reader.name + (reader.normed ? "bn.running_mean" : "bias"));
    const at::Tensor moved = reader.normed
                                 ? offset.to(at::kDouble).sub(constant)
                                 : offset.to(at::kDouble).add(constant);
    offset = moved.to(offset.scalar_type());
  }

  const ChannelGraph& graph_;
  const State& before_;
  const std::vector<Split> splits_;
};

layers::ModelTable pruned_table(const layers::ModelTable& table,
                                const ChannelGraph& graph,
                                const std::vector<Split>& splits) {
  const auto kept = [&](const std::vector<int>& units) {
    int64_t channels = 0;
    for (const int unit : units) {
      channels += splits[static_cast<size_t>(unit)].kept.size(0);
    }
    return channels;
  };
  layers::ModelTable pruned = table;
  pruned.name = table.name + "_pruned";
  pruned.depth_multiple = pruned.width_multiple = 1;
  pruned.max_channels.reset();
  for (const auto& [layer, line] : graph.lines) {
    std::vector<int64_t> widths;
    for (const auto& units : line.blocks) widths.push_back(kept(units));
    line.widths.write(kept(line.output), widths, pruned.layers[layer]);
  }
  return pruned;
}

bool is_same_step(const layers::LayerProgram::Step& a,
                  const layers::LayerProgram::Step& b) {
  return a.operation == b.operation && a.inputs == b.inputs;
}

// Depthwise convolutions must stay depthwise; others stay without groups.
bool has_same_groups(const layers::LayerProgram::Block& before,
                     const layers::LayerProgram::Block& after) {
  return after.kind == before.kind &&
         after.groups == (before.groups == 1 ? 1 : after.in_channels);
}

// Checks that the pruned table builds the same layers: a module's shortcuts and
// expansion and the groups of DWConv depend on the number of channels.
void require_same_layers(const layers::ModelTable& table,
                         const layers::ModelTable& pruned) {
  const auto before = layers::layer_costs(table);
  const auto after = layers::layer_costs(pruned);
  for (size_t layer = 0; layer < before.size(); ++layer) {
    if (before[layer].program == nullptr) continue;
    const layers::LayerProgram& one = *before[layer].program;
    const layers::LayerProgram& other = *after[layer].program;
    if (std::ranges::equal(one.steps, other.steps, is_same_step) &&
        std::ranges::equal(one.blocks, other.blocks, has_same_groups)) {
      continue;
    }
    throw Error(
        "prune",
        cat(yaml::to_string(table.layers[layer].place), ": ",
            before[layer].module, " from ", one.inputs.front().channels, " to ",
            one.output().channels, " channels would become another layer with ",
            other.inputs.front().channels, " and ", other.output().channels,
            ": what it adds, and its groups, follow from them"),
        "give another --share");
  }
}

int64_t parameters_of(model::LayerGraph& model) {
  int64_t count = 0;
  for (const model::NamedTensor& entry : model.state()) {
    if (entry.is_parameter()) count += entry.tensor->numel();
  }
  return count;
}

}  // namespace

PrunedModel prune_channels(const layers::ModelTable& table,
                           model::LayerGraph& model, double share) {
  const at::NoGradGuard no_grad;
  const State before = state_of(model);
  layers::ModelTable counted = table;
  counted.num_classes = static_cast<int>(model.num_classes());
  const ChannelGraph graph = channel_graph(counted);
  const std::vector<std::vector<double>> scores = scores_of(graph, before);
  const std::vector<int64_t> removed =
      choose(graph, scores, share, table.channel_multiple);
  std::vector<Split> splits;
  PrunedModel result;
  for (size_t unit = 0; unit < graph.units.size(); ++unit) {
    splits.push_back(split_of(scores[unit], removed[unit]));
    const int64_t channels = graph.units[unit].channels;
    const size_t layer = graph.units[unit].layer;
    if (result.layers.empty() || result.layers.back().index != layer) {
      result.layers.push_back({layer, 0, 0});
    }
    result.layers.back().before += channels;
    result.layers.back().after += channels - removed[unit];
    result.channels_before += channels;
    result.channels_after += channels - removed[unit];
  }
  result.table = pruned_table(counted, graph, splits);
  require_same_layers(counted, result.table);
  for (const auto& [layer, line] : graph.lines) {
    if (line.widths.form.empty()) continue;
    result.forms[counted.layers[layer].module] = line.widths.form;
  }
  result.model = std::make_unique<model::LayerGraph>(
      result.table, model.num_classes(),
      before.begin()->second.scalar_type() == at::kDouble ? at::kDouble
                                                          : at::kFloat,
      /*seed=*/0);
  const State after = Pruner(graph, before, std::move(splits)).run();
  for (const model::NamedTensor& entry : result.model->state()) {
    const at::Tensor& values = after.at(entry.name);
    HEADROOM_CHECK(values.sizes() == entry.tensor->sizes(), entry.name);
    entry.tensor->copy_(values);
  }
  result.parameters_before = parameters_of(model);
  result.parameters_after = parameters_of(*result.model);
  return result;
}

}  // namespace headroom::tools
