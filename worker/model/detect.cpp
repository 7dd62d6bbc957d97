#include "worker/model/detect.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/conv2d.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/zeros.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/csrc/autograd/variable.h>

#include <algorithm>
#include <cmath>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/device_scratch.h"
#include "parallel/base/text.h"
#include "worker/kernels/cpu/convolution.h"
#include "worker/model/conv_block.h"
#include "worker/model/model_state.h"

namespace headroom::model {
namespace {

using Anchors = std::vector<std::vector<std::pair<double, double>>>;

// The bias of a new detector. It corresponds to 8 objects in an image of 640
// pixels and nearly equally rare classes, so that training does not begin with
// many false detections (Lin et al., arXiv:1708.02002, section 3.3).
at::Tensor fresh_bias(const InitialisationKey& key, int64_t c_in,
                      int64_t num_anchors, int64_t num_fields, int64_t stride) {
  at::Tensor bias = uniform_values(key, {num_anchors * num_fields},
                                   kaiming_bound(c_in), at::kFloat);
  const double cells = 640.0 / static_cast<double>(stride);
  const auto num_classes = static_cast<double>(num_fields - 5);
  const at::Tensor fields = bias.view({num_anchors, num_fields});
  fields.select(1, 4).add_(std::log(8 / (cells * cells)));
  fields.narrow(1, 5, num_fields - 5)
      .add_(std::log(0.6 / (num_classes - 0.99999)));
  return bias;
}

double total_area(const std::vector<std::pair<double, double>>& anchors) {
  double area = 0;
  for (const auto& anchor : anchors) area += anchor.first * anchor.second;
  return area;
}

void order_like_strides(const std::vector<layers::MapShape>& inputs,
                        Anchors& anchors) {
  const double rise = total_area(anchors.back()) - total_area(anchors.front());
  const int64_t stride_rise = inputs.back().stride - inputs.front().stride;
  if ((rise > 0 && stride_rise < 0) || (rise < 0 && stride_rise > 0))
    std::reverse(anchors.begin(), anchors.end());
}

at::Tensor anchors_in_cells(const std::vector<layers::MapShape>& inputs,
                            const Anchors& anchors) {
  const auto num_levels = static_cast<int64_t>(inputs.size());
  const auto num_anchors = static_cast<int64_t>(anchors.front().size());
  at::Tensor cells = at::empty({num_levels, num_anchors, 2}, at::kDouble);
  double* out = cells.data_ptr<double>();
  for (std::size_t level = 0; level < inputs.size(); ++level)
    for (const auto& anchor : anchors[level]) {
      const auto stride = static_cast<double>(inputs[level].stride);
      *out++ = anchor.first / stride;
      *out++ = anchor.second / stride;
    }
  return cells;
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

// The number of channels with which a head is computed: padded for 16-bit maps
// on a device.
int64_t computed_channels(const at::Tensor& map, int64_t channels) {
  return map.is_cpu() || map.element_size() != 2 ? channels
                                                 : filled_channels(channels);
}

// The weight [C_out, C_in, 1, 1] padded with zeros to `rows` output channels.
at::Tensor filled_up(const at::Tensor& weight, int64_t rows) {
  if (weight.size(0) == rows) return weight;
  at::Tensor filled = at::zeros({rows, weight.size(1), 1, 1}, weight.options());
  filled.narrow(0, 0, weight.size(0)).copy_(weight);
  return filled;
}

// On the CPU the result is the head [N, F, H, W]. On a device the head is
// written to `device_head`, and the result is a tensor of one element with the
// sizes and type of the convolution's result: it only tells autograd which
// gradient backward() takes.
class HeadFunction : public torch::autograd::Function<HeadFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const at::Tensor& weight, const at::Tensor& bias,
                            const at::Tensor* ready, at::Tensor* device_head) {
    const at::Tensor input = x.contiguous(at::MemoryFormat::ChannelsLast);
    ctx->save_for_backward({input, weight});
    ctx->saved_data["ready"] = *ready;
    const int64_t channels = weight.size(0);
    const at::Tensor y =
        kernels::convolution(input,
                             filled_up(compute_weight(input, weight, *ready),
                                       computed_channels(input, channels)),
                             {});
    const at::Tensor added = bias.view({1, -1, 1, 1});
    if (y.is_cpu()) return y.to(bias.scalar_type()).add_(added);
    // A device converts and adds in one pass.
    *device_head = y.scalar_type() == bias.scalar_type()
                       ? y.add_(added)
                       : at::add(y.narrow(1, 0, channels), added);
    return at::empty_strided(y.sizes(), {0, 0, 0, 0}, y.options());
  }

  static variable_list backward(AutogradContext* ctx, variable_list& grads) {
    const variable_list saved = ctx->get_saved_variables();
    const at::Tensor& x = saved[0];
    const at::Tensor& weight = saved[1];
    const int64_t channels = weight.size(0);
    at::Tensor dbias;
    if (ctx->needs_input_grad(2)) {
      dbias = grads[0]
                  .sum({0, 2, 3}, /*keepdim=*/false, weight.scalar_type())
                  .narrow(0, 0, channels);
    }
    const kernels::ConvolutionGradients gradients =
        kernels::convolution_gradients(
            grads[0]
                .to(x.scalar_type())
                .contiguous(at::MemoryFormat::ChannelsLast),
            x,
            filled_up(
                compute_weight(x, weight, ctx->saved_data["ready"].toTensor()),
                computed_channels(x, channels)),
            {}, ctx->needs_input_grad(0), ctx->needs_input_grad(1));
    return {
        gradients.dx,
        gradients.dweight.defined()
            ? gradients.dweight.narrow(0, 0, channels).to(weight.scalar_type())
            : at::Tensor(),
        dbias, at::Tensor(), at::Tensor()};
  }
};

// A head on a device in the form of `view`. Autograd takes its gradient as a
// map (detect.h).
template <typename View>
at::Tensor head_on_device(const at::Tensor& x, const at::Tensor& weight,
                          const at::Tensor& bias,
                          const at::Tensor& compute_weight, const View& view) {
  at::Tensor values;
  const at::Tensor taken =
      HeadFunction::apply(x, weight, bias, &compute_weight, &values);
  values = view(values);
  if (!taken.requires_grad()) return values;
  return torch::autograd::make_variable(
      std::move(values), torch::autograd::impl::gradient_edge(taken));
}

// Views a map [N, anchors * fields, H, W] as [N, anchors, H, W, fields].
at::Tensor by_anchor(const at::Tensor& map, int64_t num_anchors,
                     int64_t num_fields) {
  const at::Tensor pixels = map.permute({0, 2, 3, 1}).contiguous();
  return pixels
      .view({pixels.size(0), pixels.size(1), pixels.size(2), num_anchors,
             num_fields})
      .permute({0, 3, 1, 2, 4});
}

}  // namespace

Detect::Detect(ModelState& state, const std::string& prefix,
               const std::vector<layers::MapShape>& inputs, Anchors anchors,
               int64_t num_classes)
    : num_anchors_(static_cast<int64_t>(anchors.front().size())),
      num_fields_(5 + num_classes),
      heads_(inputs.size()) {
  order_like_strides(inputs, anchors);
  state.add(prefix + "anchors", TensorRole::kConstant, &anchors_,
            anchors_in_cells(inputs, anchors));
  for (std::size_t level = 0; level < inputs.size(); ++level) {
    const std::string name = cat(prefix, "m.", level, ".");
    const int64_t c_in = inputs[level].channels;
    Head& head = heads_[level];
    head.stride = inputs[level].stride;
    state.add_convolution_weight(name + "weight", &head.weight,
                                 &head.compute_weight,
                                 num_anchors_ * num_fields_, c_in, 1);
    state.add(name + "bias", TensorRole::kBias, &head.bias,
              fresh_bias({state.seed(), name + "bias"}, c_in, num_anchors_,
                         num_fields_, head.stride));
  }
}

at::Tensor Detect::raw_head(const Head& head, const at::Tensor& map) const {
  const auto view = [this](const at::Tensor& of) {
    return by_anchor(of, num_anchors_, num_fields_);
  };
  if (!map.is_cpu()) {
    return head_on_device(map, head.weight, head.bias, head.compute_weight,
                          view);
  }
  return view(
      output_convolution(map, head.weight, head.bias, head.compute_weight));
}

std::vector<at::Tensor> Detect::forward(const std::vector<at::Tensor>& inputs,
                                        const StepContext&) {
  std::vector<at::Tensor> raw;
  for (std::size_t level = 0; level < heads_.size(); ++level) {
    raw.push_back(raw_head(heads_[level], inputs[level]));
  }
  return raw;
}

at::Tensor Detect::decode(const std::vector<at::Tensor>& heads,
                          const std::vector<int64_t>& first_rows) const {
  HEADROOM_CHECK(heads.size() == heads_.size() &&
                     (first_rows.empty() || first_rows.size() == heads.size()),
                 cat(heads.size(), " heads and ", first_rows.size(),
                     " first rows of ", heads_.size(), " levels"));
  const at::NoGradGuard no_grad;
  const int64_t images = heads.front().size(0);
  int64_t num_rows = 0;
  for (const at::Tensor& head : heads)
    num_rows += num_anchors_ * head.size(2) * head.size(3);

  at::Tensor boxes =
      at::empty({images, num_rows, num_fields_}, heads.front().options());
  int64_t begin = 0;
  for (std::size_t level = 0; level < heads.size(); ++level) {
    const int64_t height = heads[level].size(2);
    const int64_t width = heads[level].size(3);
    const int64_t count = num_anchors_ * height * width;
    at::Tensor part =
        boxes.narrow(1, begin, count)
            .view({images, num_anchors_, height, width, num_fields_});
    begin += count;
    at::sigmoid_out(part, heads[level]);

    const auto stride = static_cast<double>(heads_[level].stride);
    const at::Tensor columns = at::arange(width, boxes.options()).sub_(0.5);
    const int64_t first_row = first_rows.empty() ? 0 : first_rows[level];
    const at::Tensor rows =
        at::arange(first_row, first_row + height, boxes.options())
            .sub_(0.5)
            .view({height, 1});
    part.select(4, 0).mul_(2).add_(columns).mul_(stride);
    part.select(4, 1).mul_(2).add_(rows).mul_(stride);
    const at::Tensor anchors = anchors_[static_cast<int64_t>(level)]
                                   .to(boxes.device(), boxes.scalar_type())
                                   .mul(stride);
    part.narrow(4, 2, 2).mul_(2).square_().mul_(
        anchors.view({num_anchors_, 1, 1, 2}));
  }
  return boxes;
}

std::vector<LayerGraph::Level> Detect::levels() const {
  const at::Tensor cells = anchors_.detach().to(at::kDouble).contiguous();
  const double* next = cells.data_ptr<double>();
  std::vector<LayerGraph::Level> levels;
  for (const Head& head : heads_) {
    LayerGraph::Level level;
    level.stride = head.stride;
    const auto stride = static_cast<double>(head.stride);
    for (int64_t i = 0; i < num_anchors_; ++i, next += 2)
      level.anchors.emplace_back(next[0] * stride, next[1] * stride);
    levels.push_back(std::move(level));
  }
  return levels;
}

at::Tensor output_convolution(const at::Tensor& x, const at::Tensor& weight,
                              const at::Tensor& bias,
                              const at::Tensor& compute_weight) {
  if (!x.is_cpu()) {
    return head_on_device(x, weight, bias, compute_weight,
                          [](const at::Tensor& head) { return head; });
  }
  return x.scalar_type() == weight.scalar_type()
             ? at::conv2d(x, weight, bias)
             : head_convolution(x, weight, bias, compute_weight);
}

at::Tensor head_convolution(const at::Tensor& x, const at::Tensor& weight,
                            const at::Tensor& bias,
                            const at::Tensor& compute_weight) {
  return HeadFunction::apply(x, weight, bias, &compute_weight, nullptr);
}

}  // namespace headroom::model
