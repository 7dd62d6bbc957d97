#include "worker/step/pass_lists.h"

#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>

#include <utility>

#include "worker/model/row_runner.h"

namespace headroom::step {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kSamples = 2;

// The identity; its backward comes before that of the row behind it.
struct RowBegins : torch::autograd::Function<RowBegins> {
  static at::Tensor forward(AutogradContext* context, const at::Tensor& output,
                            spatial::ExchangeRecorder* recorder, int64_t row) {
    context->saved_data["recorder"] = reinterpret_cast<int64_t>(recorder);
    context->saved_data["row"] = row;
    return output;
  }
  static variable_list backward(AutogradContext* context,
                                variable_list& gradients) {
    reinterpret_cast<spatial::ExchangeRecorder*>(
        context->saved_data["recorder"].toInt())
        ->set_row(context->saved_data["row"].toInt());
    return {std::move(gradients[0]), at::Tensor(), at::Tensor()};
  }
};

// Tells the recorder which row runs, forward and backward.
class RowNotes final : public model::RowRunner {
 public:
  explicit RowNotes(spatial::ExchangeRecorder& recorder)
      : recorder_(recorder) {}

  std::vector<at::Tensor> run(int64_t index, model::Row& row,
                              const std::vector<at::Tensor>& inputs,
                              const model::StepContext& context) override {
    recorder_.set_row(index);
    std::vector<at::Tensor> outputs = row.forward(inputs, context);
    for (at::Tensor& output : outputs) {
      if (output.requires_grad())
        output = RowBegins::apply(output, &recorder_, index);
    }
    return outputs;
  }

 private:
  spatial::ExchangeRecorder& recorder_;
};

// The maps that cross the borders of the kept rows.
struct Border {
  std::map<int, layers::MapShape> received;
  std::vector<int> sent;
};

Border border_of(const model::LayerGraph& graph) {
  const model::LayerGraph::RowRange rows = graph.kept_rows();
  const auto is_kept = [&rows](int64_t row) {
    return rows.begin <= row && row < rows.end;
  };
  Border border;
  for (size_t reader = 0; reader < graph.inputs().size(); ++reader) {
    for (const int row : graph.inputs()[reader]) {
      if (row < 0 || is_kept(row) == is_kept(static_cast<int64_t>(reader))) {
        continue;
      }
      if (is_kept(row)) {
        border.sent.push_back(row);
      } else {
        border.received[row] = graph.map_shapes()[static_cast<size_t>(row)];
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

PassLists record_pass_lists(const layers::ModelTable& table,
                            int64_t num_classes, at::ScalarType scalar_type,
                            model::LayerGraph::RowRange rows, int64_t freeze,
                            bool images_are_split) {
  model::LayerGraph graph(table, num_classes, scalar_type, /*seed=*/0);
  for (const model::NamedTensor& entry : graph.state()) {
    if (entry.is_parameter()) entry.tensor->requires_grad_();
  }
  graph.freeze(freeze);
  graph.keep_rows(rows);

  spatial::ExchangeRecorder recorder;
  RowNotes notes(recorder);
  model::StepContext context;
  context.runner = &notes;
  context.training = true;
  context.groups = {{0, kSamples, kSamples, true}};
  context.exchange = &recorder;
  if (images_are_split) context.halo = &recorder;

  const Border border = border_of(graph);
  const int64_t block = graph.max_stride();
  model::LayerGraph::RowMaps received;
  for (const auto& [row, shape] : border.received) {
    received[row] = zero_map(shape.channels, block / shape.stride, scalar_type)
                        .requires_grad_(freeze < rows.begin);
  }
  PassLists lists;
  const std::vector<at::Tensor> outputs = graph.forward_rows(
      std::move(received), zero_map(table.input_channels, block, scalar_type),
      context, border.sent);
  lists.forward = recorder.take();
  at::Tensor sum = at::zeros({}, scalar_type);
  for (const at::Tensor& output : outputs) sum = sum.add(output.sum());
  if (sum.requires_grad()) sum.backward();
  lists.backward = recorder.take();
  return lists;
}

}  // namespace headroom::step
