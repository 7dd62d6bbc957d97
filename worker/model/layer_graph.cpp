#include "worker/model/layer_graph.h"

#include <c10/util/StringUtil.h>

#include <algorithm>
#include <utility>

#include "parallel/base/check.h"
#include "worker/model/detect.h"
#include "worker/model/model_state.h"
#include "worker/model/row.h"
#include "worker/model/row_factory.h"
#include "worker/model/row_runner.h"

namespace headroom {
namespace {

constexpr int kImages = -1;  // the edge from the network's input
constexpr int64_t kMaxClasses = 10000;
constexpr int64_t kMaxInputChannels = 1024;

// Absolute rows that row `index` reads; the first row reads the images.
std::vector<int> edges_of(const ModelTable& table, std::size_t index) {
  const int here = static_cast<int>(index);
  std::vector<int> edges;
  for (const int from : table.rows[index].from) {
    const int row = from < 0 ? here + from : from;
    const bool reads_images = here == 0 && row == kImages;
    if (!reads_images && (row < 0 || row >= here))
      fail_row(table, index,
               "input " + std::to_string(from) + " is not an earlier row",
               "use -1 to -" + std::to_string(std::max(here, 1)) +
                   (here > 0 ? ", or 0 to " + std::to_string(here - 1) : ""));
    edges.push_back(row);
  }
  if (edges.empty())
    fail_row(table, index, "there is no input", "write -1 for the row before");
  return edges;
}

void check_table(const ModelTable& table, int64_t num_classes) {
  const auto fail = [&table](const std::string& what,
                             const std::string& remedy) {
    throw Error("model", table.name + ": " + what, remedy);
  };
  if (table.rows.empty()) fail("there are no rows", "add backbone and head");
  if (table.activation != "SiLU" && table.activation != "nn.SiLU()" &&
      table.activation != "nn.SiLU")
    fail("activation " + table.activation + " is not supported", "use SiLU");
  if (num_classes < 1 || num_classes > kMaxClasses)
    fail(std::to_string(num_classes) + " classes",
         "use 1 to " + std::to_string(kMaxClasses));
  if (table.channel_multiple < 1)
    fail("channel_multiple is " + std::to_string(table.channel_multiple),
         "use 1 or more, usually 8");
  if (table.input_channels < 1 || table.input_channels > kMaxInputChannels)
    fail("ch is " + std::to_string(table.input_channels),
         "use 1 to " + std::to_string(kMaxInputChannels) + ", usually 3");
  const std::size_t last = table.rows.size() - 1;
  for (std::size_t i = 0; i <= last; ++i)
    if ((table.rows[i].module == "Detect") != (i == last))
      fail_row(table, i, "the last row, and no other, is Detect",
               "move Detect to the end");
}

}  // namespace

struct LayerGraph::Implementation {
  struct Node {
    std::unique_ptr<Row> row;
    std::vector<int> inputs;      // absolute rows, or kImages
    std::vector<int> last_uses;   // rows whose outputs nobody reads afterwards
    std::size_t state_begin = 0;  // of its entries in the state
  };

  Implementation(at::ScalarType scalar_type, uint64_t seed)
      : state(scalar_type, seed) {}

  ModelState state;
  std::vector<Node> nodes;
  Detect* detect = nullptr;
  int64_t input_channels = 3;
  int64_t num_classes = 0;
  int64_t max_stride = 0;
  std::vector<Level> levels;
};

LayerGraph::LayerGraph(const ModelTable& table, int64_t num_classes,
                       at::ScalarType scalar_type, uint64_t seed)
    : implementation_(std::make_unique<Implementation>(scalar_type, seed)) {
  HEADROOM_CHECK(scalar_type == at::kFloat || scalar_type == at::kDouble,
                 c10::toString(scalar_type));
  check_table(table, num_classes);
  Implementation& graph = *implementation_;
  graph.input_channels = table.input_channels;
  graph.num_classes = num_classes;

  const MapShape images{table.input_channels, 1};
  std::vector<MapShape> outputs;
  std::vector<std::size_t> last_reader(table.rows.size(), 0);
  for (std::size_t i = 0; i < table.rows.size(); ++i) {
    Implementation::Node node;
    node.inputs = edges_of(table, i);
    node.state_begin = graph.state.tensors().size();
    std::vector<MapShape> shapes;
    for (const int input : node.inputs) {
      shapes.push_back(
          input == kImages ? images : outputs[static_cast<std::size_t>(input)]);
      if (input != kImages) last_reader[static_cast<std::size_t>(input)] = i;
    }
    BuiltRow built = build_row(table, i, shapes, num_classes, graph.state);
    node.row = std::move(built.row);
    if (built.detect != nullptr) {
      graph.detect = built.detect;
      for (const MapShape& level : shapes)
        graph.max_stride = std::max(graph.max_stride, level.stride);
    }
    outputs.push_back(built.output);
    graph.nodes.push_back(std::move(node));
  }
  // A row without a reader would never get a gradient.
  for (std::size_t i = 0; i + 1 < table.rows.size(); ++i) {
    if (last_reader[i] == 0)
      fail_row(table, i, "no later row reads its output",
               "remove the row or connect it");
    graph.nodes[last_reader[i]].last_uses.push_back(static_cast<int>(i));
  }
}

LayerGraph::~LayerGraph() = default;

std::vector<at::Tensor> LayerGraph::forward(const at::Tensor& images,
                                            const StepContext& context) {
  Implementation& graph = *implementation_;
  HEADROOM_CHECK(images.dim() == 4 && images.size(1) == graph.input_channels &&
                     images.size(2) % graph.max_stride == 0 &&
                     images.size(3) % graph.max_stride == 0 &&
                     images.scalar_type() == graph.state.scalar_type(),
                 "images " +
                     c10::str(images.sizes(), " ", images.scalar_type()) +
                     ", expected [N, " + std::to_string(graph.input_channels) +
                     ", H, W] with sides in multiples of " +
                     std::to_string(graph.max_stride));
  const at::Tensor input = images.contiguous(at::MemoryFormat::ChannelsLast);
  std::vector<at::Tensor> maps(graph.nodes.size());
  for (std::size_t i = 0; i < graph.nodes.size(); ++i) {
    const Implementation::Node& node = graph.nodes[i];
    std::vector<at::Tensor> inputs;
    for (const int from : node.inputs)
      inputs.push_back(from == kImages ? input
                                       : maps[static_cast<std::size_t>(from)]);
    std::vector<at::Tensor> outputs =
        context.runner != nullptr
            ? context.runner->run(static_cast<int64_t>(i), *node.row, inputs,
                                  context)
            : node.row->forward(inputs, context);
    if (node.row.get() == graph.detect) return outputs;
    maps[i] = std::move(outputs.front());
    for (const int used : node.last_uses)
      maps[static_cast<std::size_t>(used)].reset();
  }
  fail_check("detect", __FILE__, __LINE__, "a graph without a head");
}

at::Tensor LayerGraph::decode(const std::vector<at::Tensor>& heads,
                              const std::vector<int64_t>& first_rows) const {
  return implementation_->detect->decode(heads, first_rows);
}

NamedTensors LayerGraph::state() { return implementation_->state.tensors(); }

const std::vector<LayerGraph::BatchNorm>& LayerGraph::batch_norms() const {
  return implementation_->state.batch_norms();
}

int64_t LayerGraph::batch_norm_sums_size() const {
  return implementation_->state.batch_norm_sums_size();
}

const std::vector<LayerGraph::Level>& LayerGraph::levels() const {
  implementation_->levels = implementation_->detect->levels();
  return implementation_->levels;
}

int64_t LayerGraph::num_classes() const { return implementation_->num_classes; }

int64_t LayerGraph::max_stride() const { return implementation_->max_stride; }

int64_t LayerGraph::num_rows() const {
  return static_cast<int64_t>(implementation_->nodes.size());
}

void LayerGraph::freeze(int64_t num_rows_frozen) {
  if (num_rows_frozen < 0 || num_rows_frozen > num_rows())
    throw Error("model",
                "freeze " + std::to_string(num_rows_frozen) + " of " +
                    std::to_string(num_rows()) + " rows",
                "use 0 to " + std::to_string(num_rows()));
  const NamedTensors& tensors = implementation_->state.tensors();
  const auto end =
      num_rows_frozen == num_rows()
          ? tensors.size()
          : implementation_->nodes[static_cast<std::size_t>(num_rows_frozen)]
                .state_begin;
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].is_parameter())
      tensors[i].tensor->set_requires_grad(i >= end);
}

}  // namespace headroom
