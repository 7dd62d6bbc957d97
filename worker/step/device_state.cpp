#include "worker/step/device_state.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <map>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/device_scratch.h"
#include "parallel/base/memory_category.h"
#include "worker/model/conv_block.h"
#include "worker/optim/optimizer.h"

namespace headroom::step {

DeviceState::DeviceState(const devices::ComputeDevice& device,
                         model::LayerGraph& model,
                         const data_parallel::FlatBuffer& statistics) {
  const MemoryCategoryScope scope(MemoryCategory::kWorkspace);
  norm_ = at::zeros({}, device.options(at::kDouble));
  scratch_ = at::empty({kCommitScratchElements}, statistics.values().options());
  std::map<const at::Tensor*, int64_t> begins;  // of each running statistic
  for (const model::LayerGraph::BatchNorm& norm : model.batch_norms()) {
    begins[norm.running_mean] = norm.sums_offset;
    begins[norm.running_var] = norm.sums_offset + norm.channels;
  }
  at::Tensor places = at::zeros({statistics.size()}, at::kLong);
  size_t slot = 0;
  for (const model::NamedTensor& entry : model.state()) {
    if (entry.role != model::TensorRole::kRunningStatistic) continue;
    const data_parallel::FlatBuffer::Slot& at = statistics.slots()[slot++];
    const int64_t begin = begins.at(entry.tensor);
    for (int64_t i = 0; i < at.size; ++i) {
      places.data_ptr<int64_t>()[at.offset + i] = begin + i;
    }
  }
  places_ = device.upload(places);
  means_ = at::empty({statistics.size()}, device.options(at::kDouble));
  moved_ = at::empty_like(means_);
}

void DeviceState::begin_norm() { norm_.zero_(); }

void DeviceState::add_norm(const at::Tensor& a, const at::Tensor& b) {
  for (int64_t begin = 0; begin < a.numel(); begin += kCommitScratchElements) {
    const int64_t size = std::min(kCommitScratchElements, a.numel() - begin);
    at::Tensor sum = scratch_.narrow(0, 0, size);
    at::add_out(sum, a.narrow(0, begin, size), b.narrow(0, begin, size));
    norm_.add_(at::linalg_vector_norm(sum, 2, at::OptionalIntArrayRef(),
                                      /*keepdim=*/false, at::kDouble)
                   .square_());
  }
}

double DeviceState::norm() const { return norm_.item<double>(); }

void DeviceState::move_running_statistics(const at::Tensor& statistics,
                                          const at::Tensor& batch_norm_sums,
                                          int64_t num_groups) {
  if (statistics.numel() == 0) return;
  at::index_select_out(means_, batch_norm_sums, 0, places_);
  means_.div_(static_cast<double>(num_groups)).mul_(model::kBatchNormMomentum);
  moved_.copy_(statistics);
  statistics.copy_(moved_.mul_(1 - model::kBatchNormMomentum).add_(means_));
}

std::unique_ptr<devices::DeviceOptimizer> device_optimizer(
    const devices::ComputeDevice& device,
    std::span<const optim::Segment> segments, int64_t size) {
  if (device.is_cpu()) return nullptr;
  std::vector<devices::FlatBufferRange> ranges;
  for (const optim::Segment& segment : segments) {
    ranges.push_back({segment.offset, segment.size, segment.group});
  }
  return device.kernels()->make_optimizer(device.device().index(), ranges,
                                          size);
}

devices::DeviceOptimizerStep device_optimizer_step(
    optim::OptimizerKind kind, const optim::OptimizerStep& step) {
  devices::DeviceOptimizerStep fused;
  fused.is_adam = kind != optim::OptimizerKind::kSgd;
  for (size_t group = 0; group < fused.sgd.size(); ++group) {
    const optim::GroupSettings& of = step.groups[group];
    if (fused.is_adam) {
      fused.adam[group] = optim::adam_coefficients(
          of, {step.momentum, step.step, step.clip_coefficient,
               kind == optim::OptimizerKind::kAdamW});
    } else {
      fused.sgd[group] = {of.lr, of.weight_decay, step.momentum,
                          step.clip_coefficient, step.step == 1};
    }
  }
  fused.average_weight = 1 - optim::ema_decay(step.step);
  return fused;
}

}  // namespace headroom::step
