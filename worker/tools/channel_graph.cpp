#include "worker/tools/channel_graph.h"

#include <algorithm>
#include <utility>

#include "configs/layers/layer_cost.h"
#include "configs/layers/layer_widths.h"
#include "parallel/base/check.h"

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

}  // namespace headroom::tools
