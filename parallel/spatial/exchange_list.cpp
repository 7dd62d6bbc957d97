#include "parallel/spatial/exchange_list.h"

#include <ATen/ops/full.h>

namespace headroom::spatial {
namespace {

ExchangeStep halo_step(ExchangeStep::Kind kind, const at::Tensor& map,
                       int64_t top, int64_t bottom) {
  ExchangeStep step;
  step.kind = kind;
  step.channels = map.size(1);
  step.rows_per_block = map.size(2);
  step.columns_per_block = map.size(3);
  step.top = top;
  step.bottom = bottom;
  return step;
}

}  // namespace

void ExchangeRecorder::sum(std::span<double> values) {
  ExchangeStep step;
  step.values = static_cast<int64_t>(values.size());
  add(step);
}

void ExchangeRecorder::add(ExchangeStep step) {
  step.layer = layer_;
  steps_.push_back(step);
}

RowWindow ExchangeRecorder::window(int64_t local_rows) const {
  return {0, local_rows};
}

at::Tensor ExchangeRecorder::receive(const at::Tensor& x, int64_t top,
                                     int64_t bottom, double beyond_edge) {
  add(halo_step(ExchangeStep::Kind::kReceiveHalo, x, top, bottom));
  return at::full({x.size(0), x.size(1), top + bottom, x.size(3)}, beyond_edge,
                  x.options().memory_format(at::MemoryFormat::ChannelsLast));
}

void ExchangeRecorder::give_back(const at::Tensor& dhalo, const at::Tensor& dx,
                                 int64_t top) {
  add(halo_step(ExchangeStep::Kind::kGiveBackHalo, dx, top,
                dhalo.size(2) - top));
}

void ExchangeRecorder::sum_over_images(const at::Tensor& values) {
  ExchangeStep step;
  step.kind = ExchangeStep::Kind::kImageSum;
  step.values = values.numel() / values.size(0);
  add(step);
}

}  // namespace headroom::spatial
