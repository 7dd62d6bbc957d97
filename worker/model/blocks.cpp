#include "worker/model/blocks.h"

#include <ATen/ops/add.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/constant_pad_nd.h>
#include <ATen/ops/full.h>
#include <ATen/ops/max_pool2d.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/upsample_nearest2d.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>

#include "parallel/base/halo_exchange.h"
#include "worker/model/conv_block.h"
#include "worker/model/derived_maps.h"
#include "worker/model/halo_rows.h"

namespace headroom {
namespace {

// On the view [N, H, W, C] each map is one block per cell and the result is
// channels-last whatever its sizes; along dimension 1 it takes up to 1.6 times
// as long.
at::Tensor concatenate(const std::vector<at::Tensor>& maps) {
  std::vector<at::Tensor> cells;
  for (const at::Tensor& map : maps) cells.push_back(map.permute({0, 2, 3, 1}));
  return at::cat(cells, 3).permute({0, 3, 1, 2});
}

at::Tensor concatenate_channels(const std::vector<at::Tensor>& maps,
                                const StepContext& context) {
  return derived_map(maps, context, concatenate);
}

constexpr int64_t kPoolings = 3;
constexpr double kBelowEverything = -std::numeric_limits<double>::infinity();

// `rows` without those beyond the image's edge, which no pooling may choose:
// `above` at the top and `below` at the bottom become lower than everything.
at::Tensor without_rows_beyond_edge(const at::Tensor& rows, int64_t above,
                                    int64_t below) {
  if (above == 0 && below == 0) return rows;
  return at::constant_pad_nd(
      rows.narrow(2, above, rows.size(2) - above - below), {0, 0, above, below},
      kBelowEverything);
}

// Sppf's chain on a rank's rows [N, C, H, W]: the rows that all poolings
// together reach come in one exchange, and each pooling makes as many fewer.
// The windows are those of the whole map, in its order, so that ties between
// equal values go the same way.
std::vector<at::Tensor> pools_of_rows(const at::Tensor& x, int64_t pool,
                                      const StepContext& context) {
  const int64_t reach = pool / 2, rows = x.size(2);
  const RowWindow window = context.halo->window(rows);
  int64_t around = kPoolings * reach;
  at::Tensor wide = with_halo(x, {around, around}, kBelowEverything, context);
  std::vector<at::Tensor> maps{x};
  for (int64_t pooling = 0; pooling < kPoolings; ++pooling) {
    around -= reach;
    wide = without_rows_beyond_edge(
        at::max_pool2d(wide, {pool, pool}, {1, 1}, {0, reach}),
        std::max<int64_t>(0, around - window.first_row),
        std::max<int64_t>(
            0, window.first_row + rows + around - window.global_rows));
    maps.push_back(wide.narrow(2, around, rows));
  }
  return maps;
}

// y, p(y), p(p(y)), p(p(p(y))), one after the other along the channels.
at::Tensor concatenated_pools(const at::Tensor& y, int64_t pool,
                              const StepContext& context) {
  if (context.halo != nullptr)
    return concatenate(pools_of_rows(y, pool, context));
  std::vector<at::Tensor> maps{y};
  for (int64_t pooling = 0; pooling < kPoolings; ++pooling)
    maps.push_back(at::max_pool2d(maps.back(), {pool, pool}, {1, 1},
                                  {pool / 2, pool / 2}));
  return concatenate(maps);
}

}  // namespace

Conv::Conv(ModelState& state, const std::string& prefix, const ConvShape& shape)
    : shape_(shape) {
  state.add_convolution_weight(prefix + "conv.weight", &weight_,
                               &compute_weight_, shape.c_out, shape.c_in,
                               shape.kernel);
  state.add(prefix + "bn.weight", TensorRole::kNormWeight, &norm_weight_,
            at::ones({shape.c_out}));
  state.add(prefix + "bn.bias", TensorRole::kBias, &norm_bias_,
            at::zeros({shape.c_out}));
  state.add(prefix + "bn.running_mean", TensorRole::kRunningStatistic,
            &running_mean_, at::zeros({shape.c_out}));
  state.add(prefix + "bn.running_var", TensorRole::kRunningStatistic,
            &running_var_, at::full({shape.c_out}, 0.9));
  state.add(prefix + "bn.num_batches_tracked", TensorRole::kConstant,
            &num_batches_tracked_, at::ones({}, at::kLong));
  state.add_batch_norm(prefix + "bn", shape.c_out, &running_mean_,
                       &running_var_, &sums_offset_);
}

at::Tensor Conv::apply(const at::Tensor& x, const StepContext& context) {
  ConvBlockArguments arguments;
  arguments.x = x;
  arguments.weight = weight_;
  arguments.compute_weight = compute_weight_;
  arguments.norm_weight = norm_weight_;
  arguments.norm_bias = norm_bias_;
  arguments.running_mean = running_mean_;
  arguments.running_var = running_var_;
  arguments.stride = shape_.stride;
  arguments.padding = shape_.padding;
  arguments.sums_offset = sums_offset_;
  return conv_block(arguments, context);
}

Bottleneck::Bottleneck(ModelState& state, const std::string& prefix,
                       int64_t channels, bool shortcut)
    : cv1_(state, prefix + "cv1.", {channels, channels, 1, 1, 0}),
      cv2_(state, prefix + "cv2.", {channels, channels, 3, 1, 1}),
      shortcut_(shortcut) {}

at::Tensor Bottleneck::apply(const at::Tensor& x, const StepContext& context) {
  const at::Tensor y = cv2_.apply(cv1_.apply(x, context), context);
  if (!shortcut_) return y;
  return derived_map({x, y}, context, [](const std::vector<at::Tensor>& maps) {
    return at::add(maps[0], maps[1]);
  });
}

C3::C3(ModelState& state, const std::string& prefix, int64_t c_in,
       int64_t c_out, int64_t repeats, bool shortcut)
    : cv1_(state, prefix + "cv1.", {c_in, c_out / 2, 1, 1, 0}),
      cv2_(state, prefix + "cv2.", {c_in, c_out / 2, 1, 1, 0}),
      cv3_(state, prefix + "cv3.", {2 * (c_out / 2), c_out, 1, 1, 0}) {
  for (int64_t i = 0; i < repeats; ++i)
    bottlenecks_.push_back(std::make_unique<Bottleneck>(
        state, prefix + "m." + std::to_string(i) + ".", c_out / 2, shortcut));
}

at::Tensor C3::apply(const at::Tensor& x, const StepContext& context) {
  at::Tensor deep = cv1_.apply(x, context);
  for (const auto& bottleneck : bottlenecks_)
    deep = bottleneck->apply(deep, context);
  return cv3_.apply(
      concatenate_channels({deep, cv2_.apply(x, context)}, context), context);
}

Sppf::Sppf(ModelState& state, const std::string& prefix, int64_t c_in,
           int64_t c_out, int64_t pool)
    : cv1_(state, prefix + "cv1.", {c_in, c_in / 2, 1, 1, 0}),
      cv2_(state, prefix + "cv2.", {4 * (c_in / 2), c_out, 1, 1, 0}),
      pool_(pool) {}

at::Tensor Sppf::apply(const at::Tensor& x, const StepContext& context) {
  const at::Tensor y = cv1_.apply(x, context);
  const auto pools = [pool = pool_](const at::Tensor& map,
                                    const StepContext& inside) {
    return concatenated_pools(map, pool, inside);
  };
  return cv2_.apply(context.derived != nullptr
                        ? context.derived->run_again(y, context, pools)
                        : pools(y, context),
                    context);
}

at::Tensor Upsample::apply(const at::Tensor& x, const StepContext& context) {
  return derived_map({x}, context, [](const std::vector<at::Tensor>& maps) {
    const at::Tensor& map = maps.front();
    return at::upsample_nearest2d(map, {2 * map.size(2), 2 * map.size(3)}, 2.0,
                                  2.0);
  });
}

std::vector<at::Tensor> Concat::forward(const std::vector<at::Tensor>& inputs,
                                        const StepContext& context) {
  return {concatenate_channels(inputs, context)};
}

}  // namespace headroom
