#include "worker/model/halo_rows.h"

#include <ATen/ops/empty.h>
#include <torch/csrc/autograd/custom_function.h>

#include <algorithm>
#include <string>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "worker/model/replay_log.h"
#include "worker/model/saved_pointer.h"

namespace headroom::model {
namespace {

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

constexpr int64_t kRows = 2;  // the rows' dimension in [N, C, H, W]

at::Tensor empty_rows(const at::Tensor& like, int64_t rows) {
  return at::empty(
      {like.size(0), like.size(1), rows, like.size(3)},
      like.options().memory_format(at::MemoryFormat::ChannelsLast));
}

// Copies `rows` rows of `from`, beginning at `from_row`, to `to_row` of `to`.
void copy_rows(const at::Tensor& from, int64_t from_row, const at::Tensor& to,
               int64_t to_row, int64_t rows) {
  if (rows > 0)
    to.narrow(kRows, to_row, rows).copy_(from.narrow(kRows, from_row, rows));
}

class WithHaloFunction : public torch::autograd::Function<WithHaloFunction> {
 public:
  static at::Tensor forward(AutogradContext* ctx, const at::Tensor& x,
                            const HaloReach& reach, double beyond_edge,
                            const StepContext* context) {
    ctx->saved_data["top"] = reach.top;
    ctx->saved_data["bottom"] = reach.bottom;
    // The step keeps the exchange alive until backward is done.
    ctx->saved_data["exchange"] = save_pointer(context->halo);
    const at::Tensor map = x.contiguous(at::MemoryFormat::ChannelsLast);
    return join_halo(map, fetch_halo(map, reach, beyond_edge, *context), reach);
  }

  static variable_list backward(AutogradContext* ctx, variable_list& grads) {
    const HaloReach reach{ctx->saved_data["top"].toInt(),
                          ctx->saved_data["bottom"].toInt()};
    auto* exchange = saved_pointer<HaloExchange>(ctx->saved_data["exchange"]);
    return {give_back_halo(grads[0], reach, *exchange), at::Tensor(),
            at::Tensor(), at::Tensor()};
  }
};

}  // namespace

HaloReach convolution_reach(int64_t kernel, int64_t stride, int64_t padding) {
  HEADROOM_CHECK(
      2 * padding < kernel && kernel - stride <= 2 * padding,
      cat("a convolution of kernel ", kernel, ", stride ", stride, ", padding ",
          padding, " does not divide maps by its stride"));
  return {padding, std::max<int64_t>(kernel - stride - padding, 0)};
}

at::Tensor fetch_halo(const at::Tensor& x, const HaloReach& reach,
                      double beyond_edge, const StepContext& context) {
  const auto fetch = [&] {
    return context.halo->receive(x, reach.top, reach.bottom, beyond_edge);
  };
  return context.replay_log != nullptr ? context.replay_log->once(fetch)
                                       : fetch();
}

at::Tensor join_halo(const at::Tensor& x, const at::Tensor& halo,
                     const HaloReach& reach) {
  const int64_t rows = x.size(kRows);
  at::Tensor joined = empty_rows(x, reach.top + rows + reach.bottom);
  copy_rows(halo, 0, joined, 0, reach.top);
  copy_rows(x, 0, joined, reach.top, rows);
  copy_rows(halo, reach.top, joined, reach.top + rows, reach.bottom);
  return joined;
}

at::Tensor give_back_halo(const at::Tensor& djoined, const HaloReach& reach,
                          HaloExchange& exchange) {
  const int64_t rows = djoined.size(kRows) - reach.top - reach.bottom;
  const at::Tensor dhalo = empty_rows(djoined, reach.top + reach.bottom);
  copy_rows(djoined, 0, dhalo, 0, reach.top);
  copy_rows(djoined, reach.top + rows, dhalo, reach.top, reach.bottom);
  // Copy the rows, because another consumer may share the incoming gradient.
  at::Tensor dx = empty_rows(djoined, rows);
  copy_rows(djoined, reach.top, dx, 0, rows);
  exchange.give_back(dhalo, dx, reach.top);
  return dx;
}

at::Tensor with_halo(const at::Tensor& x, const HaloReach& reach,
                     double beyond_edge, const StepContext& context) {
  return WithHaloFunction::apply(x, reach, beyond_edge, &context);
}

}  // namespace headroom::model
