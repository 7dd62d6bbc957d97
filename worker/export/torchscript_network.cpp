#include "worker/export/torchscript_network.h"
#include "worker/export/archive_mark.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/tensor.h>
#include <torch/csrc/jit/api/module.h>

#include <nlohmann/json.hpp>
#include <sstream>
#include <utility>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/head_fields.h"
#include "parallel/base/text.h"
#include "parallel/base/value_range.h"
#include "worker/export/network_walk.h"

namespace headroom::exporter {
namespace {

// Builds the module's source, one statement per operation, and its buffers.
class Source final : public NetworkEmitter {
 public:
  Source(torch::jit::Module& module, const model::LayerGraph& model,
         at::ScalarType type)
      : module_(module), model_(model), type_(type) {}

  // Returns the source of "forward"; call it after the walk.
  std::string text() {
    const Value boxes = value("torch.cat([" + joined(boxes_, ", ") + "], " +
                              (model_.has_anchors() ? "1)" : "2)"));
    return "def forward(self, images: Tensor) -> Tensor:\n" + text_ +
           "    return " + boxes + "\n";
  }

  Value add(const ExportedOperator& added) override {
    return added.torch.empty() ? Value() : value(added.torch);
  }

  Value tensor(const std::string& /*name*/, const at::Tensor& values) override {
    return add_buffer(values.detach().to(type_).contiguous().clone());
  }

  void head(size_t index, const Value& map) override {
    if (model_.has_anchors()) return decode(index, map);
    maps_.push_back(map);
    const size_t levels = model_.levels().size();
    if (index >= levels) decode_places(index - levels);
  }

 private:
  // Decodes a level to [N, rows, 5 + classes], rows by anchor, y, x.
  void decode(size_t level, const Value& convolved) {
    const std::string fields = std::to_string(5 + model_.num_classes());
    const model::LayerGraph::Level& made = model_.levels()[level];
    const std::string anchors = std::to_string(made.anchors.size());
    const Value map = value(convolved + (type_ == at::kHalf ? ".float()" : ""));
    const std::string size = map + ".size(0), " + anchors + ", " + map +
                             ".size(2), " + map + ".size(3)";
    const std::string s =
        value("torch.sigmoid(" + map + ").view([" + map + ".size(0), " +
              anchors + ", " + fields + ", " + map + ".size(2), " + map +
              ".size(3)]).permute([0, 1, 3, 4, 2])");
    const std::string x =
        value("torch.arange(" + map + ".size(3), dtype=" + map +
              ".dtype, device=" + map + ".device).expand([" + size + "])");
    const std::string y =
        value("torch.arange(" + map + ".size(2), dtype=" + map +
              ".dtype, device=" + map + ".device).view([-1, 1]).expand([" +
              size + "])");
    const std::string xy =
        value(cat("(", s, "[:, :, :, :, 0:2] * 2.0 - 0.5 + torch.stack([", x,
                  ", ", y, "], 4)) * ", made.stride, ".0"));
    const std::string wh =
        value("torch.square(" + s + "[:, :, :, :, 2:4] * 2.0) * " +
              anchor_buffer(made));
    boxes_.push_back(value("torch.cat([" + xy + ", " + wh + ", " + s +
                           "[:, :, :, :, 4:]], 4).view([" + map +
                           ".size(0), -1, " + fields + "])"));
  }

  // Decodes a level without anchors to [N, 4 + classes, rows], rows by y, x, as
  // model::PlaceHead does.
  void decode_places(size_t level) {
    const auto in_float = [this](const Value& map) {
      return value(map + (type_ == at::kHalf ? ".float()" : ""));
    };
    if (level == 0) {
      bins_ = add_buffer(
          at::arange(kDistanceBins, type_ == at::kHalf ? at::kFloat : type_)
              .view({1, 1, kDistanceBins, 1}));
    }
    const int64_t stride = model_.levels()[level].stride;
    const Value box = in_float(maps_[level]);
    const Value classes = in_float(maps_[level + model_.levels().size()]);
    const Value sides = value(
        cat("torch.sum(torch.softmax(", box, ".reshape([", box, ".size(0), ",
            kBoxSides, ", ", kDistanceBins, ", -1]), 2) * ", bins_, ", [2])"));
    const auto along = [&](int dimension, const char* as) {
      return value(cat("(torch.arange(", box, ".size(", dimension,
                       "), dtype=", box, ".dtype, device=", box,
                       ".device) + 0.5)", as, ".expand([", box, ".size(2), ",
                       box, ".size(3)]).reshape([1, 1, -1])"));
    };
    const Value x = along(3, ""), y = along(2, ".view([-1, 1])");
    const Value centre = value(cat("((", sides, "[:, 2:4] - ", sides,
                                   "[:, 0:2]) * 0.5 + torch.cat([", x, ", ", y,
                                   "], 1)) * ", stride, ".0"));
    const Value size = value(
        cat("(", sides, "[:, 0:2] + ", sides, "[:, 2:4]) * ", stride, ".0"));
    boxes_.push_back(
        value(cat("torch.cat([", centre, ", ", size, ", torch.sigmoid(",
                  classes, ").reshape([", classes, ".size(0), ",
                  model_.num_classes(), ", -1])], 1)")));
  }

  std::string anchor_buffer(const model::LayerGraph::Level& level) {
    std::vector<double> sizes;
    for (const auto& [width, height] : level.anchors) {
      sizes.insert(sizes.end(), {width, height});
    }
    return add_buffer(
        at::tensor(sizes, type_ == at::kHalf ? at::kFloat : type_)
            .view({1, static_cast<int64_t>(level.anchors.size()), 1, 1, 2}));
  }

  std::string value(const std::string& expression) {
    const std::string name = cat("v", num_values_++);
    text_ += "    " + name + " = " + expression + "\n";
    return name;
  }

  std::string add_buffer(const at::Tensor& values) {
    const std::string name = cat("b", num_buffers_++);
    module_.register_buffer(name, values);
    return "self." + name;
  }

  torch::jit::Module& module_;
  const model::LayerGraph& model_;
  const at::ScalarType type_;
  std::vector<Value> maps_;   // the heads so far, without anchors
  Value bins_;                // 0, 1, ..: the buffer for heads without anchors
  std::vector<Value> boxes_;  // the boxes of each level
  std::string text_;
  int num_values_ = 0, num_buffers_ = 0;
};

std::string config_text(const TorchscriptOptions& options, int64_t channels,
                        int64_t stride,
                        const std::map<std::string, std::string>& metadata) {
  nlohmann::json names = nlohmann::json::object();
  if (const auto said = metadata.find("names"); said != metadata.end()) {
    const auto given = nlohmann::json::parse(said->second, nullptr, false);
    for (size_t i = 0; given.is_array() && i < given.size(); ++i) {
      names[std::to_string(i)] = given[i];
    }
  }
  nlohmann::json config = {
      {"shape", {options.batch, channels, options.height, options.width}},
      {"stride", stride},
      {"names", names}};
  if (const auto said = metadata.find(kValueRange); said != metadata.end()) {
    config[kValueRange] = said->second;
  }
  return config.dump();
}

}  // namespace

std::string make_torchscript_network(
    const layers::ModelTable& table, model::LayerGraph& model,
    const TorchscriptOptions& options,
    const std::map<std::string, std::string>& metadata) {
  const at::NoGradGuard no_grad;
  torch::jit::Module module("__torch__.headroom.Detector");
  Source source(module, model, options.type);
  walk_network(table, model, "images", source);
  module.define(source.text());
  module.eval();
  std::ostringstream archive;
  module.save(archive,
              {{"config.txt", config_text(options, table.input_channels,
                                          model.max_stride(), metadata)},
               {kArchiveMark, ""}});
  return std::move(archive).str();
}

}  // namespace headroom::exporter
