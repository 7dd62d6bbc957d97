#include "worker/step/collective_schedule.h"

#include <ATen/ops/add.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <string>
#include <utility>

#include "parallel/base/check.h"
#include "worker/model/layer.h"
#include "worker/model/saved_pointer.h"

namespace headroom::step {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kSamples = 2;

// The identity; its backward comes before that of the layer behind it.
struct LayerBegins : torch::autograd::Function<LayerBegins> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& output,
                            spatial::ExchangeRecorder* recorder,
                            int64_t layer) {
    context->saved_data["recorder"] = model::save_pointer(recorder);
    context->saved_data["layer"] = layer;
    return output;
  }
  static variable_list backward(AutogradContext* context,
                                variable_list& gradients) {
    model::saved_pointer<spatial::ExchangeRecorder>(
        context->saved_data["recorder"])
        ->set_layer(context->saved_data["layer"].toInt());
    return {std::move(gradients[0]), at::Tensor(), at::Tensor()};
  }
};

// Tells the recorder which layer runs, forward and backward.
class LayerNotes final : public model::LayerExecutor {
 public:
  explicit LayerNotes(spatial::ExchangeRecorder& recorder)
      : recorder_(recorder) {}

  std::vector<at::Tensor> run(int64_t index, model::Layer& layer,
                              const std::vector<at::Tensor>& inputs,
                              const model::StepContext& context) override {
    recorder_.set_layer(index);
    std::vector<at::Tensor> outputs = layer.forward(inputs, context);
    for (at::Tensor& output : outputs) {
      if (output.requires_grad())
        output = LayerBegins::apply(output, &recorder_, index);
    }
    return outputs;
  }

 private:
  spatial::ExchangeRecorder& recorder_;
};

// The maps that cross the borders of the kept layers.
struct Border {
  std::map<int, layers::MapShape> received;
  std::vector<int> sent;
};

Border border_of(const model::LayerGraph& graph) {
  const model::LayerGraph::LayerRange layers = graph.kept_layers();
  const auto is_kept = [&layers](int64_t layer) {
    return layers.begin <= layer && layer < layers.end;
  };
  Border border;
  for (size_t reader = 0; reader < graph.inputs().size(); ++reader) {
    for (const int layer : graph.inputs()[reader]) {
      if (layer < 0 ||
          is_kept(layer) == is_kept(static_cast<int64_t>(reader))) {
        continue;
      }
      if (is_kept(layer)) {
        border.sent.push_back(layer);
      } else {
        border.received[layer] = graph.map_shapes()[static_cast<size_t>(layer)];
      }
    }
  }
  return border;
}

at::Tensor zero_map(int64_t channels, int64_t side, at::ScalarType type) {
  return at::zeros({kSamples, channels, side, side}, type)
      .contiguous(at::MemoryFormat::ChannelsLast);
}

}  // namespace

CollectiveSchedule record_collective_schedule(
    const layers::ModelTable& table, int64_t num_classes,
    at::ScalarType scalar_type, model::LayerGraph::LayerRange layers,
    int64_t freeze, bool images_are_split) {
  model::LayerGraph graph(table, num_classes, scalar_type, /*seed=*/0);
  for (const model::NamedTensor& entry : graph.state()) {
    if (entry.is_parameter()) entry.tensor->requires_grad_();
  }
  graph.freeze(freeze);
  graph.keep_layers(layers);

  spatial::ExchangeRecorder recorder;
  LayerNotes notes(recorder);
  model::StepContext context;
  context.runner = &notes;
  context.training = true;
  context.groups = {{0, kSamples, kSamples, true}};
  context.exchange = &recorder;
  if (images_are_split) context.halo = &recorder;

  const Border border = border_of(graph);
  const int64_t block = graph.max_stride();
  model::LayerGraph::LayerMaps received;
  for (const auto& [layer, shape] : border.received) {
    received[layer] =
        zero_map(shape.channels, block / shape.stride, scalar_type)
            .requires_grad_(freeze < layers.begin);
  }
  CollectiveSchedule lists;
  const std::vector<at::Tensor> outputs = graph.forward_layers(
      std::move(received), zero_map(table.input_channels, block, scalar_type),
      context, border.sent);
  lists.forward = recorder.take();
  at::Tensor sum = at::zeros({}, scalar_type);
  for (const at::Tensor& output : outputs) sum = sum.add(output.sum());
  if (sum.requires_grad()) sum.backward();
  lists.backward = recorder.take();
  return lists;
}

std::vector<PassEntry> merged_pass(
    pipeline::Instruction::Kind kind,
    const std::vector<int64_t>& exchange_layers,
    const std::vector<zero::LayerCollective>& collectives,
    const std::vector<int64_t>& collective_layers) {
  HEADROOM_CHECK(collectives.size() == collective_layers.size(),
                 std::to_string(collectives.size()) + " collectives in " +
                     std::to_string(collective_layers.size()) + " layers");
  const bool forward = kind == pipeline::Instruction::Kind::kForward;
  // A layer's turn; where it is the same, the collective is first if it
  // gathers.
  const auto turn = [forward](int64_t layer) {
    return forward ? layer : -layer;
  };
  std::vector<PassEntry> entries;
  size_t exchange = 0, collective = 0;
  while (exchange < exchange_layers.size() || collective < collectives.size()) {
    const bool exchanges_are_done = exchange == exchange_layers.size();
    bool is_collective = exchanges_are_done;
    if (!exchanges_are_done && collective < collectives.size()) {
      const int64_t other = turn(exchange_layers[exchange]);
      const int64_t mine = turn(collective_layers[collective]);
      is_collective =
          mine < other ||
          (mine == other && collectives[collective].kind ==
                                zero::LayerCollective::Kind::kGather);
    }
    ++(is_collective ? collective : exchange);
    entries.push_back(is_collective ? PassEntry::kLayerCollective
                                    : PassEntry::kExchange);
  }
  return entries;
}

void complete_merged(const std::vector<PassEntry>& entries,
                     spatial::CompletableExchange& exchange,
                     size_t num_collectives,
                     const std::function<void()>& complete_next_collective) {
  const size_t num_done = exchange.num_done() + num_collectives;
  const auto first = entries.begin() + static_cast<std::ptrdiff_t>(num_done);
  HEADROOM_CHECK(
      num_done <= entries.size() &&
          std::count(entries.begin(), first, PassEntry::kExchange) ==
              static_cast<std::ptrdiff_t>(exchange.num_done()),
      "after " + std::to_string(exchange.num_done()) + " exchanges and " +
          std::to_string(num_collectives) +
          " collectives of layers the pass is not where its list is");
  for (auto entry = first; entry != entries.end(); ++entry) {
    if (*entry == PassEntry::kExchange) {
      exchange.complete_next();
    } else {
      complete_next_collective();
    }
  }
}

void release_failed_graph() {
  const at::Tensor leaf = at::ones({1}).requires_grad_();
  leaf.add(0).backward();
}

}  // namespace headroom::step
