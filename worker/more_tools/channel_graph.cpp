#include "worker/more_tools/channel_graph.h"

#include <algorithm>
#include <map>
#include <string>
#include <utility>

#include "configs/layers/layer_cost.h"
#include "configs/layers/layer_modules.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"

namespace headroom::tools {
namespace {

using Operation = layers::LayerProgram::Operation;

// Follows every channel through the model, then groups the channels into units.
class Walk {
 public:
  explicit Walk(const layers::ModelTable& table)
      : table_(table), costs_(layers::layer_costs(table)) {}

  ChannelGraph run() {
    std::vector<Map> maps;
    for (layer_ = 0; layer_ < costs_.size(); ++layer_) {
      std::vector<Map> inputs;
      for (const int from : costs_[layer_].inputs) {
        inputs.push_back(from < 0 ? images() : maps[static_cast<size_t>(from)]);
      }
      maps.push_back(costs_[layer_].program == nullptr
                         ? head(inputs)
                         : output_of(*costs_[layer_].program, inputs));
    }
    number_units();
    for (size_t i = 0; i < written_.size(); ++i) {
      layer_ = layer_of_[i];
      graph_.convolutions[i].units = units_of(written_[i]);
    }
    for (const Reading& reading : readings_) {
      layer_ = reading.layer;
      graph_.readers.push_back(
          {reading.name, reading.normed, segments_of(reading.map)});
    }
    for (layer_ = 0; layer_ < costs_.size(); ++layer_) {
      if (has_convolutions()) describe_line(maps[layer_]);
    }
    return std::move(graph_);
  }

 private:
  // A channel of a map is a sum of outputs of convolutions. These are the
  // indices of the summed outputs in outputs_; empty for a channel of the
  // images.
  using Channel = std::vector<size_t>;
  using Map = std::vector<Channel>;
  static constexpr int kNone = -1;
  // One channel of a convolution.
  struct Output {
    size_t convolution = 0;
    int64_t channel = 0;
    // The index of an output that is tied to this output, or the index of this
    // output if it is the first of those that are tied together.
    size_t tied_to = 0;
    // The unit and the index in the unit; set only for the first of the outputs
    // that are tied together.
    int unit = kNone;
    int64_t index = 0;
  };
  struct Reading {
    size_t layer = 0;
    std::string name;
    bool normed = true;
    Map map;
  };

  std::string prefix() const { return cat("model.", layer_, "."); }
  bool has_convolutions() const {
    const auto& program = costs_[layer_].program;
    return program != nullptr && !program->blocks.empty();
  }
  Map images() const { return Map(static_cast<size_t>(table_.input_channels)); }

  Map head(const std::vector<Map>& inputs) {
    for (size_t level = 0; level < inputs.size(); ++level) {
      readings_.push_back({layer_, cat(prefix(), "m.", level, "."),
                           /*normed=*/false, inputs[level]});
    }
    return {};
  }

  Map output_of(const layers::LayerProgram& program, std::vector<Map> values) {
    const size_t first = written_.size();
    for (const layers::LayerProgram::Block& block : program.blocks) {
      declare(block);
    }
    for (const layers::LayerProgram::Step& step : program.steps) {
      values.push_back(run_step(program, step, first, values));
    }
    return values.back();
  }

  void declare(const layers::LayerProgram::Block& block) {
    Map map;
    for (int64_t channel = 0; channel < block.channels; ++channel) {
      map.push_back({outputs_.size()});
      outputs_.push_back({written_.size(), channel, outputs_.size()});
    }
    graph_.convolutions.push_back(
        {prefix() + block.name, block.activation, {}});
    written_.push_back(std::move(map));
    layer_of_.push_back(layer_);
  }

  // `first` is the index of the layer's first convolution.
  Map run_step(const layers::LayerProgram& program,
               const layers::LayerProgram::Step& step, size_t first,
               const std::vector<Map>& values) {
    const Map& x = values[static_cast<size_t>(step.inputs.front())];
    switch (step.operation) {
      case Operation::kBlock:
        return run_block(program.block_of(step), x,
                         written_[first + *step.block]);
      case Operation::kPools:
        return joined(std::vector<Map>(step.windows.size() + 1, x));
      case Operation::kAdd:
        return sum(x, values[static_cast<size_t>(step.inputs[1])]);
      case Operation::kConcat: {
        std::vector<Map> maps;
        for (const int value : step.inputs) {
          maps.push_back(values[static_cast<size_t>(value)]);
        }
        return joined(maps);
      }
      case Operation::kUpsample:
        return x;
      case Operation::kFold:
        return joined({x, x, x, x});
      case Operation::kSlice:
      case Operation::kShuffle:
        break;
    }
    refuse("it needs two equal halves, and pruning leaves unequal ones");
  }

  Map run_block(const layers::LayerProgram::Block& block, const Map& x,
                const Map& made) {
    using Kind = layers::LayerProgram::BlockKind;
    switch (block.kind) {
      case Kind::kConv:
        read(block, x, made);
        return made;
      case Kind::kTransposedConv:
        refuse(
            "a transposed convolution has no batch norm to take over what a "
            "removed channel was worth");
      case Kind::kOutputConv:
        refuse("a head without anchors is not pruned");
      case Kind::kSqueezeExcite:
        refuse(
            "squeeze and excitation scales each channel by what the image "
            "shows, so that a removed one was no constant");
    }
    HEADROOM_CHECK(false, block.name + " is a block of no kind");
  }

  static Map joined(const std::vector<Map>& maps) {
    Map all;
    for (const Map& map : maps) all.insert(all.end(), map.begin(), map.end());
    return all;
  }

  void read(const layers::LayerProgram::Block& block, const Map& x,
            const Map& made) {
    if (block.groups == 1) {
      readings_.push_back({layer_, prefix() + block.name, /*normed=*/true, x});
      return;
    }
    if (block.groups != block.in_channels || block.groups != block.channels) {
      refuse(
          cat("its convolution takes ", block.in_channels, " channels to ",
              block.channels, " in ", block.groups,
              " groups, and pruning follows only groups of one channel in and "
              "one out"));
    }
    for (size_t i = 0; i < x.size(); ++i) tie(x[i], made[i]);
  }

  Map sum(const Map& a, const Map& b) {
    Map all = a;
    for (size_t i = 0; i < a.size(); ++i) {
      tie(a[i], b[i]);
      all[i].insert(all[i].end(), b[i].begin(), b[i].end());
    }
    return all;
  }

  void tie(const Channel& a, const Channel& b) {
    if (a.empty() || b.empty()) {
      refuse("its channels are tied to those of the images, which stay");
    }
    outputs_[first_of(b.front())].tied_to = first_of(a.front());
  }

  // The first of all outputs that are tied to `output`.
  size_t first_of(size_t output) {
    while (outputs_[output].tied_to != output) {
      Output& here = outputs_[output];
      here.tied_to = outputs_[here.tied_to].tied_to;
      output = here.tied_to;
    }
    return output;
  }

  // Numbers the units: channels that are written by the same convolutions form
  // a unit. Units are in the order of the state, except that the last
  // convolution of a layer follows the layer's other convolutions.
  void number_units() {
    std::vector<std::vector<size_t>> writers(outputs_.size());
    for (size_t output = 0; output < outputs_.size(); ++output) {
      writers[first_of(output)].push_back(outputs_[output].convolution);
    }
    std::map<std::vector<size_t>, int> units;
    const auto number = [&](const Map& written) {
      for (const Channel& channel : written) {
        const size_t first = first_of(channel.front());
        if (outputs_[first].unit != kNone) continue;
        const auto [unit, is_new] = units.try_emplace(
            writers[first], static_cast<int>(graph_.units.size()));
        if (is_new) graph_.units.push_back({0, layer_});
        outputs_[first].unit = unit->second;
        outputs_[first].index =
            graph_.units[static_cast<size_t>(unit->second)].channels++;
      }
    };
    size_t begin = 0;
    for (layer_ = 0; layer_ < costs_.size(); ++layer_) {
      if (!has_convolutions()) continue;
      const layers::LayerProgram& program = *costs_[layer_].program;
      const size_t last = begin + program.steps.back().block.value_or(0);
      const size_t end = begin + program.blocks.size();
      for (; begin < end; ++begin) {
        if (begin != last) number(written_[begin]);
      }
      number(written_[last]);
    }
  }

  std::vector<ChannelGraph::Segment> segments_of(const Map& map) {
    std::vector<ChannelGraph::Segment> segments;
    size_t begin = 0;
    while (begin < map.size()) {
      ChannelGraph::Segment segment;
      if (map[begin].empty()) {
        segment.channels = 1;
      } else {
        segment.unit = outputs_[first_of(map[begin].front())].unit;
        segment.channels =
            graph_.units[static_cast<size_t>(segment.unit)].channels;
        for (const size_t output : map[begin]) {
          segment.sum.push_back(
              {outputs_[output].convolution, outputs_[output].channel});
        }
      }
      const auto size = static_cast<size_t>(segment.channels);
      for (size_t i = 0; i < size; ++i) {
        if (begin + i >= map.size() || !continues(segment, map[begin + i], i)) {
          refuse(
              "its channels are tied to others in another order than theirs");
        }
      }
      segments.push_back(std::move(segment));
      begin += size;
    }
    return segments;
  }

  // Whether `channel` is channel number `index` of the segment.
  bool continues(const ChannelGraph::Segment& segment, const Channel& channel,
                 size_t index) {
    if (channel.size() != segment.sum.size()) return false;
    const auto distance = static_cast<int64_t>(index);
    for (size_t i = 0; i < channel.size(); ++i) {
      const Output& output = outputs_[channel[i]];
      const Output& first = outputs_[first_of(channel[i])];
      if (first.unit != segment.unit || first.index != distance ||
          output.convolution != segment.sum[i].convolution ||
          output.channel != segment.sum[i].first_channel + distance) {
        return false;
      }
    }
    return true;
  }

  std::vector<int> units_of(const Map& map) {
    std::vector<int> units;
    for (const ChannelGraph::Segment& segment : segments_of(map)) {
      units.push_back(segment.unit);
    }
    return units;
  }

  void describe_line(const Map& output) {
    const layers::LayerProgram& program = *costs_[layer_].program;
    ChannelGraph::Line& line = graph_.lines[layer_];
    line.widths = layers::layer_widths(table_, layer_, program.inputs,
                                       table_.num_classes);
    line.output = units_of(output);
    for (const std::string& block : line.widths.blocks) {
      const auto convolution =
          std::ranges::find(graph_.convolutions, prefix() + block,
                            &ChannelGraph::Convolution::name);
      HEADROOM_CHECK(convolution != graph_.convolutions.end(), block);
      line.blocks.push_back(convolution->units);
    }
  }

  [[noreturn]] void refuse(const std::string& why) const {
    const layers::ModelTable::Layer& layer = table_.layers[layer_];
    throw Error("prune",
                yaml::to_string(layer.place) + ": " + layer.module + ": " + why,
                "prune a model without such a layer, such as yolov5n to "
                "yolov5x6 and yolov5s-ghost");
  }

  const layers::ModelTable& table_;
  const std::vector<layers::LayerCost> costs_;
  ChannelGraph graph_;
  size_t layer_ = 0;
  std::vector<Output> outputs_;
  std::vector<Map> written_;  // for each convolution, the map that it writes
  std::vector<size_t> layer_of_;  // for each convolution, its layer
  std::vector<Reading> readings_;
};

}  // namespace

ChannelGraph channel_graph(const layers::ModelTable& table) {
  return Walk(table).run();
}

}  // namespace headroom::tools
