#include "worker/tools/channel_graph.h"

#include <map>
#include <utility>

#include "parallel/base/check.h"

namespace headroom::tools {
namespace {

using Segments = std::vector<ChannelGraph::Segment>;

class Walk {
 public:
  Walk(const layers::ModelTable& table, model::LayerGraph& model)
      : table_(table), model_(model) {
    for (const model::NamedTensor& entry : model.state()) {
      state_[entry.name] = *entry.tensor;
    }
  }

  ChannelGraph run() {
    std::vector<Segments> maps;
    for (layer_ = 0; layer_ < table_.layers.size(); ++layer_) {
      graph_.units_of_layer.emplace_back();
      std::vector<Segments> inputs;
      for (const int from : model_.inputs()[layer_]) {
        inputs.push_back(from < 0 ? Segments{{ChannelGraph::kImages, 0}}
                                  : maps[static_cast<size_t>(from)]);
      }
      maps.push_back(output_of(inputs));
    }
    return std::move(graph_);
  }

 private:
  Segments output_of(const std::vector<Segments>& inputs) {
    const layers::ModelTable::Layer& layer = table_.layers[layer_];
    const std::string prefix = "model." + std::to_string(layer_) + ".";
    if (layer.module == "Conv") {
      constexpr size_t kPlain = 4;  // channels, kernel, stride, padding
      if (layer.args.size() > kPlain) refuse("Conv with groups");
      return write(read(prefix, inputs.front()));
    }
    if (layer.module == "C3") return c3(prefix, inputs.front());
    if (layer.module == "SPPF") {
      const Segments y = write(read(prefix + "cv1.", inputs.front()));
      return write(read(prefix + "cv2.", join({y, y, y, y})));
    }
    if (layer.module == "nn.Upsample") return inputs.front();
    if (layer.module == "Concat") return join(inputs);
    if (layer.module == "Detect") {
      for (size_t level = 0; level < inputs.size(); ++level) {
        graph_.readers.push_back({prefix + "m." + std::to_string(level) + ".",
                                  /*normed=*/false, inputs[level]});
      }
      return {};
    }
    refuse(layer.module);
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

  // In the order of configs/layers/layer_widths.h; cv3 last.
  Segments c3(const std::string& prefix, const Segments& x) {
    const auto& args = table_.layers[layer_].args;
    const auto* word =
        args.size() > 1 ? std::get_if<std::string>(&args[1]) : nullptr;
    const bool adds =
        word == nullptr || (word->front() != 'F' && word->front() != 'f');
    Segments deep = write(read(prefix + "cv1.", x));
    const Segments side = write(read(prefix + "cv2.", x));
    for (int64_t i = 0;; ++i) {
      const std::string inner = prefix + "m." + std::to_string(i) + ".";
      if (state_.count(inner + "cv1.conv.weight") == 0) break;
      const Segments hidden = write(read(inner + "cv1.", deep));
      const std::string last = read(inner + "cv2.", hidden);
      deep = adds ? add_to(deep.front().unit, last) : write(last);
    }
    return write(read(prefix + "cv3.", join({deep, side})));
  }

  std::string read(const std::string& name, const Segments& input) {
    graph_.readers.push_back({name, /*normed=*/true, input});
    return name;
  }
  Segments write(const std::string& name) {
    const int unit = static_cast<int>(graph_.units.size());
    graph_.units.push_back(
        {state_.at(name + "bn.weight").size(0), {name}, layer_});
    graph_.units_of_layer.back().push_back(unit);
    return {{unit, 1}};
  }
  Segments add_to(int unit, const std::string& name) {
    auto& writers = graph_.units[static_cast<size_t>(unit)].writers;
    writers.push_back(name);
    graph_.units_of_layer.back().push_back(unit);
    return {{unit, writers.size()}};
  }
  static Segments join(const std::vector<Segments>& maps) {
    Segments all;
    for (const Segments& map : maps) {
      all.insert(all.end(), map.begin(), map.end());
    }
    return all;
  }

  const layers::ModelTable& table_;
  model::LayerGraph& model_;
  std::map<std::string, at::Tensor> state_;
  ChannelGraph graph_;
  size_t layer_ = 0;
};

}  // namespace

ChannelGraph channel_graph(const layers::ModelTable& table,
                           model::LayerGraph& model) {
  return Walk(table, model).run();
}

}  // namespace headroom::tools
