#include "parallel/spatial/completable_exchange.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <string>

#include "parallel/base/check.h"
#include "parallel/base/memory_category.h"

namespace headroom::spatial {

using Kind = ExchangeStep::Kind;

CompletableExchange::CompletableExchange(StatisticsExchange* statistics,
                                         CommunicatorHaloExchange* halo,
                                         const at::TensorOptions& map_options)
    : statistics_(statistics), halo_(halo), map_options_(map_options) {}

void CompletableExchange::begin(const std::vector<ExchangeStep>& list,
                                const PassSize& size) {
  list_ = list;
  size_ = size;
  num_done_ = 0;
  int64_t most_values = 0, most_elements = 0;
  for (const ExchangeStep& step : list) {
    HEADROOM_CHECK(step.kind == Kind::kStatistics ? statistics_ != nullptr
                                                  : halo_ != nullptr,
                   "a list of what there is no exchange for");
    if (step.kind == Kind::kStatistics || step.kind == Kind::kImageSum) {
      most_values = std::max(most_values, num_values(step));
    } else {
      most_elements =
          std::max(most_elements, halo_->completion_elements(task_of(step)));
    }
  }
  if (static_cast<int64_t>(sums_.size()) < most_values)
    sums_.resize(static_cast<std::size_t>(most_values));
  if (!map_options_.device().is_cpu() &&
      (!device_sums_.defined() || device_sums_.numel() < most_values)) {
    const MemoryCategoryScope scope(MemoryCategory::kCommunication);
    device_sums_ = at::empty({most_values}, map_options_.dtype(at::kDouble));
  }
  if (!zeros_.defined() || zeros_.numel() < most_elements) {
    const MemoryCategoryScope scope(MemoryCategory::kCommunication);
    zeros_ = at::zeros({most_elements}, map_options_);
    discard_ = at::empty({most_elements}, map_options_);
  }
}

void CompletableExchange::complete() {
  while (num_done_ < list_.size()) complete_next();
}

void CompletableExchange::complete_next() {
  const ExchangeStep& step = list_[num_done_];
  if (step.kind == Kind::kStatistics || step.kind == Kind::kImageSum) {
    const auto count = static_cast<std::size_t>(num_values(step));
    std::fill_n(sums_.begin(), count, 0.0);
    if (step.kind == Kind::kStatistics && device_sums_.defined()) {
      // The other ranks' sums lie there: the same communicator has to be used.
      statistics_->sum_tensor(
          device_sums_.narrow(0, 0, static_cast<int64_t>(count)).zero_());
    } else if (step.kind == Kind::kStatistics) {
      statistics_->sum(std::span(sums_).first(count));
    } else {
      halo_->sum_over_images(at::from_blob(
          sums_.data(), {static_cast<int64_t>(count)}, at::kDouble));
    }
  } else {
    halo_->complete(task_of(step), zeros_, discard_);
  }
  ++num_done_;
}

void CompletableExchange::sum(std::span<double> values) {
  const int64_t expected = num_values(expect(Kind::kStatistics));
  HEADROOM_CHECK(static_cast<int64_t>(values.size()) == expected,
                 std::to_string(values.size()) + " sums where the list has " +
                     std::to_string(expected));
  statistics_->sum(values);
  ++num_done_;
}

void CompletableExchange::sum_tensor(const at::Tensor& values) {
  const int64_t expected = num_values(expect(Kind::kStatistics));
  HEADROOM_CHECK(values.numel() == expected, std::to_string(values.numel()) +
                                                 " sums where the list has " +
                                                 std::to_string(expected));
  statistics_->sum_tensor(values);
  ++num_done_;
}

RowWindow CompletableExchange::window(int64_t local_rows) const {
  return halo_->window(local_rows);
}

at::Tensor CompletableExchange::receive(const at::Tensor& x, int64_t top,
                                        int64_t bottom, double beyond_edge) {
  expect_halo(Kind::kReceiveHalo, x, top, bottom);
  at::Tensor halo = halo_->receive(x, top, bottom, beyond_edge);
  ++num_done_;
  return halo;
}

void CompletableExchange::give_back(const at::Tensor& dhalo,
                                    const at::Tensor& dx, int64_t top) {
  expect_halo(Kind::kGiveBackHalo, dx, top, dhalo.size(2) - top);
  halo_->give_back(dhalo, dx, top);
  ++num_done_;
}

void CompletableExchange::sum_over_images(const at::Tensor& values) {
  const int64_t expected = num_values(expect(Kind::kImageSum));
  HEADROOM_CHECK(values.numel() == expected, std::to_string(values.numel()) +
                                                 " sums where the list has " +
                                                 std::to_string(expected));
  halo_->sum_over_images(values);
  ++num_done_;
}

HaloTask CompletableExchange::task_of(const ExchangeStep& step) const {
  HaloTask task;
  task.gives_back = step.kind == Kind::kGiveBackHalo;
  task.samples = size_.samples;
  task.channels = step.channels;
  task.local_rows = step.rows_per_block * size_.own_row_blocks;
  task.width = step.columns_per_block * size_.column_blocks;
  task.top = step.top;
  task.bottom = step.bottom;
  return task;
}

int64_t CompletableExchange::num_values(const ExchangeStep& step) const {
  return step.values *
         (step.kind == Kind::kImageSum ? size_.samples : size_.num_groups);
}

const ExchangeStep& CompletableExchange::expect(Kind kind) const {
  HEADROOM_CHECK(num_done_ < list_.size() && list_[num_done_].kind == kind,
                 "exchange " + std::to_string(num_done_) +
                     " is not the one in the list of " +
                     std::to_string(list_.size()));
  return list_[num_done_];
}

void CompletableExchange::expect_halo(Kind kind, const at::Tensor& map,
                                      int64_t top, int64_t bottom) const {
  const HaloTask task = task_of(expect(kind));
  HEADROOM_CHECK(
      map.sizes() == at::IntArrayRef({task.samples, task.channels,
                                      task.local_rows, task.width}) &&
          top == task.top && bottom == task.bottom,
      "exchange " + std::to_string(num_done_) +
          " is of another map than in the list");
}

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

void ExchangeRecorder::sum_tensor(const at::Tensor& values) {
  ExchangeStep step;
  step.values = values.numel();
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
