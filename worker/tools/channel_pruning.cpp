#include "worker/tools/channel_pruning.h"

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
#include "configs/layers/layer_widths.h"
#include "parallel/base/check.h"
#include "parallel/base/units.h"
#include "worker/kernels/element_math.h"

namespace headroom::tools {
namespace {

using Segments = std::vector<ChannelGraph::Segment>;
using Operation = layers::LayerProgram::Operation;

class Walk {
 public:
  explicit Walk(const layers::ModelTable& table)
      : table_(table), costs_(layers::layer_costs(table)) {}

  ChannelGraph run() {
    std::vector<Segments> maps;
    for (layer_ = 0; layer_ < table_.layers.size(); ++layer_) {
      graph_.units_of_layer.emplace_back();
      std::vector<Segments> inputs;
      for (const int from : costs_[layer_].inputs) {
        inputs.push_back(from < 0 ? Segments{{ChannelGraph::kImages, 0}}
                                  : maps[static_cast<size_t>(from)]);
      }
      maps.push_back(costs_[layer_].program == nullptr
                         ? head(inputs)
                         : output_of(*costs_[layer_].program, inputs));
    }
    return std::move(graph_);
  }

 private:
  std::string prefix() const { return "model." + std::to_string(layer_) + "."; }

  Segments head(const std::vector<Segments>& inputs) {
    for (size_t level = 0; level < inputs.size(); ++level) {
      graph_.readers.push_back({prefix() + "m." + std::to_string(level) + ".",
                                /*normed=*/false, inputs[level]});
    }
    return {};
  }

  Segments output_of(const layers::LayerProgram& program,
                     std::vector<Segments> values) {
    const std::string& module = table_.layers[layer_].module;
    if (!layers::can_write_widths(module, program.blocks.size())) {
      refuse(module);
    }
    declare_units(program);
    for (const layers::LayerProgram::Step& step : program.steps) {
      values.push_back(run_step(program, step, values));
    }
    return values.back();
  }

  // One unit for each convolution, unless it adds to another one's channels.
  // They are numbered in the order of the widths.
  void declare_units(const layers::LayerProgram& program) {
    std::vector<size_t> order;
    for (size_t block = 0; block < program.blocks.size(); ++block) {
      if (block != program.steps.back().block) order.push_back(block);
    }
    if (!program.blocks.empty()) order.push_back(program.steps.back().block);
    const std::vector<size_t> target = shared_units(program);
    unit_of_block_.assign(program.blocks.size(), ChannelGraph::kImages);
    for (const size_t block : order) {
      if (target[block] != block) continue;
      unit_of_block_[block] = static_cast<int>(graph_.units.size());
      graph_.units.push_back({program.blocks[block].channels, {}, layer_});
    }
    for (const size_t block : order) {
      unit_of_block_[block] = unit_of_block_[target[block]];
      graph_.units_of_layer.back().push_back(unit_of_block_[block]);
    }
  }

  // For each convolution the first one whose channels it shares.
  std::vector<size_t> shared_units(const layers::LayerProgram& program) const {
    constexpr size_t kNone = SIZE_MAX;
    std::vector<size_t> target(program.blocks.size());
    for (size_t block = 0; block < target.size(); ++block) {
      target[block] = block;
    }
    // By value: the convolution that made it.
    std::vector<size_t> maker(program.inputs.size(), kNone);
    for (const layers::LayerProgram::Step& step : program.steps) {
      size_t made = kNone;
      if (step.operation == Operation::kBlock) made = step.block;
      if (step.operation == Operation::kAdd) {
        made = maker[static_cast<size_t>(step.inputs[0])];
        const size_t other = maker[static_cast<size_t>(step.inputs[1])];
        if (made == kNone || other == kNone) {
          refuse(table_.layers[layer_].module);
        }
        made = target[made];
        target[other] = made;
      }
      maker.push_back(made);
    }
    return target;
  }

  Segments run_step(const layers::LayerProgram& program,
                    const layers::LayerProgram::Step& step,
                    const std::vector<Segments>& values) {
    const layers::ModelTable::Layer& layer = table_.layers[layer_];
    const Segments& x = values[static_cast<size_t>(step.inputs.front())];
    switch (step.operation) {
      case Operation::kBlock:
        return run_block(program.blocks[step.block], step.block, x);
      case Operation::kPools: {
        std::vector<Segments> maps(step.windows.size() + 1, x);
        return join(maps);
      }
      case Operation::kAdd: {
        const int unit = x.front().unit;
        return {{unit, graph_.units[static_cast<size_t>(unit)].writers.size()}};
      }
      case Operation::kConcat: {
        std::vector<Segments> maps;
        for (const int value : step.inputs) {
          maps.push_back(values[static_cast<size_t>(value)]);
        }
        return join(maps);
      }
      case Operation::kUpsample:
        return x;
      case Operation::kFold:
        if (x.front().unit == ChannelGraph::kImages) return x;
        break;
      case Operation::kTransposedConv:
      case Operation::kSqueezeExcite:
      case Operation::kSlice:
      case Operation::kShuffle:
        break;
    }
    refuse(layer.module);
  }

  Segments run_block(const layers::LayerProgram::Block& block, size_t place,
                     const Segments& x) {
    if (block.groups > 1) {
      const layers::ModelTable::Layer& layer = table_.layers[layer_];
      constexpr size_t kPlain = 4;  // channels, kernel, stride, padding
      refuse(layer.module + (layer.args.size() > kPlain ? " with groups" : ""));
    }
    const std::string name = prefix() + block.name;
    graph_.readers.push_back({name, /*normed=*/true, x});
    const int unit = unit_of_block_[place];
    auto& writers = graph_.units[static_cast<size_t>(unit)].writers;
    writers.push_back({name, block.activation});
    return {{unit, 1}};
  }

  [[noreturn]] void refuse(const std::string& what) const {
    throw Error("prune",
                yaml::to_string(table_.layers[layer_].place) + ": " + what +
                    ": convolutions of one channel each, squeeze and "
                    "excitation, shuffling and slices tie channels in ways "
                    "that pruning does not follow",
                "prune a model of Conv without groups, C3, SPPF, nn.Upsample, "
                "Concat and Detect, such as yolov5n to yolov5x6");
  }

  static Segments join(const std::vector<Segments>& maps) {
    Segments all;
    for (const Segments& map : maps) {
      all.insert(all.end(), map.begin(), map.end());
    }
    return all;
  }

  const layers::ModelTable& table_;
  const std::vector<layers::LayerCost> costs_;
  ChannelGraph graph_;
  size_t layer_ = 0;
  std::vector<int> unit_of_block_;  // of the present layer
};

}  // namespace

ChannelGraph channel_graph(const layers::ModelTable& table) {
  return Walk(table).run();
}

namespace {

constexpr int64_t kLeastKept = 4;  // one part in so many

using State = std::map<std::string, at::Tensor>;

State state_of(model::LayerGraph& model) {
  State state;
  for (const model::NamedTensor& entry : model.state()) {
    state[entry.name] = *entry.tensor;
  }
  return state;
}

// Per channel: how much the loudest of its writers says.
std::vector<double> scores_of(const ChannelGraph::Unit& unit,
                              const State& state) {
  std::vector<double> scores(static_cast<size_t>(unit.channels), 0);
  for (const ChannelGraph::Unit::Writer& writer : unit.writers) {
    const at::Tensor scale =
        state.at(writer.name + "bn.weight").to(at::kDouble).contiguous();
    const double* values = scale.const_data_ptr<double>();
    for (size_t i = 0; i < scores.size(); ++i) {
      scores[i] = std::max(scores[i], std::abs(values[i]));
    }
  }
  return scores;
}

// How many of a unit's `marked` channels go: what stays is a multiple.
int64_t removable(int64_t channels, int64_t marked, int64_t multiple) {
  const int64_t least = std::max<int64_t>(1, divided_up(channels, kLeastKept));
  const int64_t kept = std::max(channels - marked, least);
  return channels - std::min(channels, round_up(kept, multiple));
}

// How many of each unit's channels go.
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
      std::to_string(wanted) + " of " + std::to_string(total) +
          " channels should go, but only " + std::to_string(num_removed) +
          " can: every convolution " +
          "keeps a quarter of its own, in multiples of " +
          std::to_string(multiple),
      "give --share " +
          std::to_string(static_cast<double>(num_removed * 100 /
                                             std::max<int64_t>(1, total)) /
                         100)
              .substr(0, 4) +
          " or less");
}

// The channels that stay, rising, and those that go.
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

  // The pruned model's state.
  State run() {
    State after = before_;
    for (const ChannelGraph::Reader& reader : graph_.readers) {
      read_less(reader, after);
    }
    for (size_t unit = 0; unit < graph_.units.size(); ++unit) {
      for (const auto& writer : graph_.units[unit].writers) {
        for (const char* name : {"conv.weight", "bn.weight", "bn.bias",
                                 "bn.running_mean", "bn.running_var"}) {
          at::Tensor& tensor = after.at(writer.name + name);
          tensor = tensor.index_select(0, splits_[unit].kept);
        }
      }
    }
    return after;
  }

 private:
  // What the channels that go are worth to who reads them.
  at::Tensor constants(const ChannelGraph::Segment& segment) const {
    const ChannelGraph::Unit& unit =
        graph_.units[static_cast<size_t>(segment.unit)];
    at::Tensor sum = at::zeros({unit.channels}, at::kDouble);
    for (size_t i = 0; i < segment.num_writers; ++i) {
      const ChannelGraph::Unit::Writer& writer = unit.writers[i];
      const at::Tensor offsets =
          before_.at(writer.name + "bn.bias").to(at::kDouble).clone();
      double* values = offsets.mutable_data_ptr<double>();
      for (int64_t c = 0; c < unit.channels; ++c) {
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
      if (segment.unit == ChannelGraph::kImages) return;
      const Split& split = splits_[static_cast<size_t>(segment.unit)];
      const int64_t width = split.kept.size(0) + split.gone.size(0);
      const at::Tensor columns = weight.narrow(1, begin, width);
      kept.push_back(columns.index_select(1, split.kept));
      constant = constant.add(
          columns.index_select(1, split.gone)
              .to(at::kDouble)
              .sum(at::IntArrayRef{2, 3})
              .matmul(constants(segment).index_select(0, split.gone)));
      begin += width;
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
  layers::ModelTable pruned = table;
  pruned.name = table.name + "_pruned";
  pruned.depth_multiple = pruned.width_multiple = 1;
  for (size_t index = 0; index < table.layers.size(); ++index) {
    std::vector<double> widths;
    for (const int unit : graph.units_of_layer[index]) {
      widths.push_back(
          static_cast<double>(splits[static_cast<size_t>(unit)].kept.size(0)));
    }
    if (widths.empty()) continue;
    layers::write_widths(pruned.layers[index], std::move(widths));
  }
  return pruned;
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
  std::vector<std::vector<double>> scores;
  for (const ChannelGraph::Unit& unit : graph.units) {
    scores.push_back(scores_of(unit, before));
  }
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
