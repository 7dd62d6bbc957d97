#include "worker/model/layer_graph.h"

#include <ATen/ops/mul.h>
#include <c10/util/StringUtil.h>

#include <algorithm>

#include "configs/layers/detect_branches.h"
#include "configs/layers/model_table.h"
#include "configs/layers/table_layer.h"
#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "worker/model/detect.h"
#include "worker/model/layer_factory.h"
#include "worker/model/model_state.h"

namespace headroom::model {
namespace {

constexpr int kImages = layers::kImageEdge;
constexpr int64_t kMaxClasses = 10000;
constexpr int64_t kMaxInputChannels = 1024;

// Luma of red, green, blue (ITU-R BT.601), [N, 1, H, W].
at::Tensor gray(const at::Tensor& images) {
  return at::mul(images.narrow(1, 0, 1), 0.299)
      .add_(images.narrow(1, 1, 1), 0.587)
      .add_(images.narrow(1, 2, 1), 0.114)
      .contiguous(at::MemoryFormat::ChannelsLast);
}

void check_table(const layers::ModelTable& table, int64_t num_classes) {
  const auto fail = [&table](const std::string& what,
                             const std::string& remedy) {
    throw Error("model", table.name + ": " + what, remedy);
  };
  if (table.layers.empty())
    fail("there are no layers", "add backbone and head");
  if (num_classes < 1 || num_classes > kMaxClasses)
    fail(cat(num_classes, " classes"), cat("use 1 to ", kMaxClasses));
  if (table.channel_multiple < 1)
    fail(cat("channel_multiple is ", table.channel_multiple),
         "use 1 or more, usually 8");
  if (table.input_channels < 1 || table.input_channels > kMaxInputChannels)
    fail(cat("ch is ", table.input_channels),
         cat("use 1 to ", kMaxInputChannels, ", usually 3"));
  const std::size_t last = table.layers.size() - 1;
  for (std::size_t i = 0; i <= last; ++i)
    if ((table.layers[i].module == "Detect") != (i == last))
      layers::fail_layer(table, i, "the last layer, and no other, is Detect",
                         "move Detect to the end");
}

}  // namespace

struct LayerGraph::Implementation {
  Implementation(at::ScalarType scalar_type, uint64_t seed)
      : state(scalar_type, seed) {}

  ModelState state;
  std::vector<std::unique_ptr<Layer>> layers;  // nullptr if dropped
  std::vector<std::vector<int>> inputs;        // layer indices, or kImages
  std::vector<layers::MapShape> map_shapes;
  LayerRange kept;
  DetectionHead* head = nullptr;  // nullptr if dropped
  int64_t input_channels = 3;
  int64_t num_classes = 0;
  int64_t max_stride = 0;
  std::vector<Level> levels;

  bool may_be_maps(at::ScalarType type) const {
    return type == state.scalar_type() ||
           (state.scalar_type() == at::kFloat &&
            (type == at::kBFloat16 || type == at::kHalf));
  }

  bool makes_gray(const at::Tensor& images) const {
    return input_channels == 1 && images.size(1) == layers::kColours;
  }

  // Checks `images` and returns them in channels-last memory.
  at::Tensor network_input(const at::Tensor& images) const {
    HEADROOM_CHECK(
        images.defined() && images.dim() == 4 &&
            (images.size(1) == input_channels || makes_gray(images)) &&
            images.size(2) % max_stride == 0 &&
            images.size(3) % max_stride == 0 &&
            may_be_maps(images.scalar_type()),
        cat("images ", c10::str(images.sizes(), " ", images.scalar_type()),
            ", expected [N, ", input_channels,
            ", H, W] with sides in multiples of ", max_stride));
    if (makes_gray(images)) return gray(images);
    return images.contiguous(at::MemoryFormat::ChannelsLast);
  }
};

LayerGraph::LayerGraph(const layers::ModelTable& given, int64_t num_classes,
                       at::ScalarType scalar_type, uint64_t seed)
    : implementation_(std::make_unique<Implementation>(scalar_type, seed)) {
  HEADROOM_CHECK(scalar_type == at::kFloat || scalar_type == at::kDouble,
                 c10::toString(scalar_type));
  check_table(given, num_classes);
  const layers::ModelTable table = layers::with_branches(given, num_classes);
  Implementation& graph = *implementation_;
  graph.input_channels = table.input_channels;
  graph.num_classes = num_classes;

  const layers::MapShape images{table.input_channels, 1};
  std::vector<bool> is_read(table.layers.size(), false);
  for (std::size_t i = 0; i < table.layers.size(); ++i) {
    graph.inputs.push_back(layers::edges_of(table, i));
    std::vector<layers::MapShape> shapes;
    for (const int input : graph.inputs.back()) {
      const auto from = static_cast<std::size_t>(input);
      shapes.push_back(input == kImages ? images : graph.map_shapes[from]);
      if (input != kImages) is_read[from] = true;
    }
    graph.state.begin_layer(static_cast<int64_t>(i));
    BuiltLayer built = build_layer(table, i, shapes, num_classes, graph.state);
    if (built.head != nullptr) {
      graph.head = built.head;
      for (const layers::MapShape& level : shapes)
        graph.max_stride = std::max(graph.max_stride, level.stride);
    }
    graph.map_shapes.push_back(built.output);
    graph.layers.push_back(std::move(built.layer));
  }
  graph.kept = {0, num_layers()};
  // A layer that no later layer reads would never get a gradient.
  for (std::size_t i = 0; i + 1 < table.layers.size(); ++i)
    if (!is_read[i])
      layers::fail_layer(table, i, "no later layer reads its output",
                         "remove the layer or connect it");
}

LayerGraph::~LayerGraph() = default;

std::vector<at::Tensor> LayerGraph::forward(const at::Tensor& images,
                                            const StepContext& context) {
  HEADROOM_CHECK(kept_layers() == (LayerRange{0, num_layers()}),
                 "a part of a graph has no forward of its own");
  return forward_layers({}, images, context, {});
}

void LayerGraph::keep_layers(LayerRange layers) {
  Implementation& graph = *implementation_;
  HEADROOM_CHECK(layers.begin >= graph.kept.begin &&
                     layers.begin < layers.end && layers.end <= graph.kept.end,
                 c10::str("layers ", layers.begin, " to ", layers.end, " of ",
                          graph.kept.begin, " to ", graph.kept.end));
  if (layers.end < num_layers() && graph.head != nullptr) {
    graph.levels = graph.head->levels();
    graph.head = nullptr;
  }
  graph.state.keep_layers(layers.begin, layers.end);
  for (int64_t layer = 0; layer < num_layers(); ++layer)
    if (layer < layers.begin || layer >= layers.end)
      graph.layers[static_cast<std::size_t>(layer)].reset();
  graph.kept = layers;
}

LayerGraph::LayerRange LayerGraph::kept_layers() const {
  return implementation_->kept;
}

std::vector<at::Tensor> LayerGraph::forward_layers(
    LayerMaps received, const at::Tensor& images, const StepContext& context,
    const std::vector<int>& wanted) {
  Implementation& graph = *implementation_;
  const auto begin = static_cast<std::size_t>(graph.kept.begin);
  const auto end = static_cast<std::size_t>(graph.kept.end);
  std::vector<at::Tensor> maps(graph.layers.size());
  std::vector<int> uses(graph.layers.size(), 0);  // number of remaining reads
  bool reads_images = false;
  for (std::size_t i = begin; i < end; ++i)
    for (const int from : graph.inputs[i]) {
      if (from == kImages)
        reads_images = true;
      else
        ++uses[static_cast<std::size_t>(from)];
    }
  for (auto& [layer, map] : received) {
    HEADROOM_CHECK(
        layer >= 0 && layer < graph.kept.begin && map.defined() &&
            uses[static_cast<std::size_t>(layer)] > 0,
        cat("no kept layer reads the received map of layer ", layer));
    maps[static_cast<std::size_t>(layer)] = std::move(map);
  }
  received.clear();
  for (const int layer : wanted) {
    HEADROOM_CHECK(
        layer >= graph.kept.begin && layer < graph.kept.end &&
            graph.head == nullptr,
        cat("the map of layer ", layer, " is not this part's to give"));
    ++uses[static_cast<std::size_t>(layer)];
  }

  const at::Tensor input = reads_images ? graph.network_input(images) : images;
  for (std::size_t i = begin; i < end; ++i) {
    std::vector<at::Tensor> inputs;
    for (const int from : graph.inputs[i]) {
      inputs.push_back(from == kImages ? input
                                       : maps[static_cast<std::size_t>(from)]);
      HEADROOM_CHECK(inputs.back().defined(),
                     cat("layer ", i, " lacks the map of layer ", from));
    }
    std::vector<at::Tensor> outputs =
        context.runner != nullptr
            ? context.runner->run(static_cast<int64_t>(i), *graph.layers[i],
                                  inputs, context)
            : graph.layers[i]->forward(inputs, context);
    if (graph.layers[i].get() == graph.head) return outputs;
    maps[i] = std::move(outputs.front());
    for (const int from : graph.inputs[i])
      if (from != kImages && --uses[static_cast<std::size_t>(from)] == 0)
        maps[static_cast<std::size_t>(from)].reset();
    if (uses[i] == 0) maps[i].reset();
  }
  std::vector<at::Tensor> result;
  for (const int layer : wanted)
    result.push_back(maps[static_cast<std::size_t>(layer)]);
  return result;
}

at::Tensor LayerGraph::decode(const std::vector<at::Tensor>& heads,
                              const std::vector<int64_t>& first_rows) const {
  HEADROOM_CHECK(implementation_->head != nullptr,
                 "a part of a graph without the head");
  return implementation_->head->decode(heads, first_rows);
}

NamedTensors LayerGraph::state() { return implementation_->state.tensors(); }

const std::vector<LayerGraph::BatchNorm>& LayerGraph::batch_norms() const {
  return implementation_->state.batch_norms();
}

int64_t LayerGraph::batch_norm_sums_size() const {
  return implementation_->state.batch_norm_sums_size();
}

const std::vector<LayerGraph::Level>& LayerGraph::levels() const {
  if (implementation_->head != nullptr)
    implementation_->levels = implementation_->head->levels();
  return implementation_->levels;
}

bool LayerGraph::has_anchors() const {
  return implementation_->head != nullptr
             ? implementation_->head->has_anchors()
             : !implementation_->levels.front().anchors.empty();
}

int64_t LayerGraph::num_classes() const { return implementation_->num_classes; }

int64_t LayerGraph::input_channels() const {
  return implementation_->input_channels;
}

int64_t LayerGraph::max_stride() const { return implementation_->max_stride; }

int64_t LayerGraph::num_layers() const {
  return static_cast<int64_t>(implementation_->layers.size());
}

const std::vector<std::vector<int>>& LayerGraph::inputs() const {
  return implementation_->inputs;
}

const std::vector<layers::MapShape>& LayerGraph::map_shapes() const {
  return implementation_->map_shapes;
}

void LayerGraph::freeze(int64_t num_layers_frozen) {
  if (num_layers_frozen < 0 || num_layers_frozen > num_layers())
    throw Error(
        "model",
        cat("freeze ", num_layers_frozen, " of ", num_layers(), " layers"),
        cat("use 0 to ", num_layers()));
  for (const NamedTensor& entry : implementation_->state.tensors())
    if (entry.is_parameter())
      entry.tensor->set_requires_grad(entry.layer >= num_layers_frozen);
}

}  // namespace headroom::model
