#include "tests/support/test_device/emulated_kernels.h"

#include <ATen/ops/from_blob.h>
#include <c10/util/Exception.h>

#include <initializer_list>
#include <memory>

#include "tests/support/test_device/operators.h"
#include "tests/support/test_device/page_locks.h"

namespace headroom {
namespace {

// Replaces each tensor by a view for a kernel.
void view_all(std::initializer_list<at::Tensor*> tensors) {
  for (at::Tensor* const tensor : tensors) {
    *tensor = EmulatedDevice::operand(*tensor);
  }
}

}  // namespace

void EmulatedDevice::check(int error) {
  TORCH_CHECK(error == 0, "a kernel was not launched: error ", error);
}

at::Tensor EmulatedDevice::operand(const at::Tensor& tensor) {
  return tensor.defined() ? kernel_view(tensor) : tensor;
}

kernels::StatisticsResult EmulatedDevice::operand(
    kernels::StatisticsResult result) {
  view_all({&result.statistics, &result.running});
  return result;
}

kernels::GradientSumsResult EmulatedDevice::operand(
    kernels::GradientSumsResult result) {
  view_all({&result.weight_gradient, &result.bias_gradient, &result.sums,
            &result.means});
  return result;
}

kernels::LossCall EmulatedDevice::operand(kernels::LossCall call) {
  for (kernels::LossCall::Level& level : call.levels) {
    view_all({&level.head, &level.objectness, &level.classes, &level.fit,
              &level.gradient});
  }
  view_all({&call.targets, &call.scales, &call.partial, &call.items,
            &call.total, &call.by_total});
  return call;
}

kernels::PlaceLossCall EmulatedDevice::operand(kernels::PlaceLossCall call) {
  for (kernels::PlaceLossCall::Level& level : call.levels) {
    view_all(
        {&level.box, &level.cls, &level.box_gradient, &level.cls_gradient});
  }
  view_all({&call.labels, &call.scales, &call.distances, &call.owners,
            &call.alignments, &call.taken, &call.all_taken, &call.maxima,
            &call.all_maxima, &call.partial, &call.items, &call.total,
            &call.by_total});
  return call;
}

kernels::FlatBuffers EmulatedDevice::operand(kernels::FlatBuffers buffers) {
  view_all({&buffers.parameters, &buffers.gradients, &buffers.accumulated,
            &buffers.first, &buffers.second, &buffers.average,
            &buffers.pieces});
  return buffers;
}

kernels::CommitPlace EmulatedDevice::operand(kernels::CommitPlace place) {
  view_all({&place.numbers, &place.outcome, &place.items, &place.objections});
  return place;
}

kernels::RunningStatistics EmulatedDevice::operand(
    kernels::RunningStatistics statistics) {
  view_all({&statistics.values, &statistics.average, &statistics.sums,
            &statistics.places});
  return statistics;
}

void EmulatedDevice::copy(const at::Tensor& host, const at::Tensor& target) {
  const std::shared_ptr<void> pages =
      lock_test_pages(static_cast<int64_t>(host.nbytes()) + 1);
  const at::Tensor copy =
      at::from_blob(pages.get(), host.sizes(), host.strides(), host.options());
  copy.copy_(host);
  do_or_remember(target.device(),
                 [pages, copy, to = kernel_view(target)] { to.copy_(copy); });
}

}  // namespace headroom
