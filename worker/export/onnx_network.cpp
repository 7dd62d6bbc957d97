#include "worker/export/onnx_network.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "worker/export/network_walk.h"
#include "worker/weights/weights_file.h"

namespace headroom::exporter {
namespace {

class OnnxEmitter final : public NetworkEmitter {
 public:
  OnnxEmitter(OnnxBody& body, const model::LayerGraph& model, bool is_half)
      : body_(body), graph_(body.graph), model_(model), is_half_(is_half) {}

  Value add(const ExportedOperator& added) override {
    std::vector<std::string> inputs;
    for (const ExportedOperator::Input& input : added.inputs) {
      inputs.push_back(name_of(input));
    }
    if (added.zero_below) body_.zero_below[inputs.front()] = *added.zero_below;
    return graph_.add(added.onnx, std::move(inputs), added.attributes);
  }

  Value tensor(const std::string& name, const at::Tensor& values) override {
    const at::Tensor stored =
        values.detach().to(is_half_ ? at::kHalf : at::kFloat).contiguous();
    OnnxTensor made;
    made.name = name;
    made.type = is_half_ ? OnnxType::kHalf : OnnxType::kFloat;
    made.dims = stored.sizes().vec();
    made.bytes.assign(static_cast<const char*>(stored.const_data_ptr()),
                      static_cast<size_t>(stored.nbytes()));
    graph_.tensors.push_back(std::move(made));
    return name;
  }

  void head(size_t index, const Value& map) override {
    const std::vector<model::LayerGraph::Level>& levels = model_.levels();
    if (index >= levels.size()) {
      body_.levels[index - levels.size()].classes = map;
      return;
    }
    body_.levels.push_back({map, levels[index].stride, levels[index].anchors});
  }

 private:
  std::string name_of(const ExportedOperator::Input& input) {
    if (const auto* whole = std::get_if<std::vector<int64_t>>(&input)) {
      return graph_.integers(*whole);
    }
    if (const auto* numbers = std::get_if<std::vector<float>>(&input)) {
      return graph_.floats(*numbers, {static_cast<int64_t>(numbers->size())});
    }
    return std::get<Value>(input);
  }

  OnnxBody& body_;
  OnnxGraph& graph_;
  const model::LayerGraph& model_;
  const bool is_half_;
};

void check_size(int64_t size, int64_t stride) {
  if (size % stride == 0) return;
  throw Error("export",
              cat("an image side of ", size,
                  " is no multiple of the model's largest stride, ", stride),
              cat("give --img ", (size / stride + 1) * stride));
}

// Programs for heads without anchors read from the file what it is for, and
// class names as a dictionary of Python.
void add_metadata_of_place_head(const layers::ModelTable& table,
                                const OnnxHeadOptions& options,
                                OnnxGraph& graph) {
  graph.metadata["task"] = "detect";
  graph.metadata["batch"] = std::to_string(std::max<int64_t>(options.batch, 1));
  graph.metadata["channels"] = std::to_string(table.input_channels);
  graph.metadata["end2end"] = "False";
  const std::vector<std::string> names =
      weights::class_names_of(graph.metadata);
  if (names.empty()) return;
  std::string text;
  for (size_t i = 0; i < names.size(); ++i) {
    text += cat(i == 0 ? "{" : ", ", i, ": ", nlohmann::json(names[i]).dump());
  }
  graph.metadata["names"] = text + "}";
}

}  // namespace

OnnxBody make_onnx_body(const layers::ModelTable& table,
                        model::LayerGraph& model,
                        const OnnxHeadOptions& options,
                        const std::map<std::string, std::string>& metadata) {
  const at::NoGradGuard no_grad;
  check_size(options.height, model.max_stride());
  check_size(options.width, model.max_stride());
  const auto size = [](int64_t known, const char* word) {
    return known > 0 ? std::variant<int64_t, std::string>(known)
                     : std::variant<int64_t, std::string>(word);
  };
  OnnxBody body;
  OnnxGraph& graph = body.graph;
  graph.name = table.name;
  graph.metadata = metadata;
  graph.metadata["stride"] = std::to_string(model.max_stride());
  if (!model.has_anchors()) add_metadata_of_place_head(table, options, graph);
  graph.inputs.push_back(
      {"images",
       options.is_half ? OnnxType::kHalf : OnnxType::kFloat,
       {size(options.batch, "batch"), int64_t{table.input_channels},
        size(options.height, "height"), size(options.width, "width")}});

  OnnxEmitter emitter(body, model, options.is_half);
  walk_network(table, model, "images", emitter);
  return body;
}

OnnxGraph with_head(OnnxBody body, const model::LayerGraph& model,
                    OnnxHeadOptions options) {
  options.num_classes = model.num_classes();
  add_head(body.graph, body.levels, options);
  return std::move(body.graph);
}

}  // namespace headroom::exporter
