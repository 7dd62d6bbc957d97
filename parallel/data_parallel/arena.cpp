#include "parallel/data_parallel/arena.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/zeros.h>

#include <utility>

#include "parallel/base/check.h"

namespace headroom {
namespace {

constexpr int64_t kAlignmentBytes = 64;

int64_t round_up(int64_t value, int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

// Not as_strided: views share one version counter, so an update of one entry
// would look like an update of all to autograd.
at::Tensor window(const at::Tensor& flat, int64_t offset,
                  const at::Tensor& like) {
  at::Tensor tensor = at::empty({0}, flat.options());
  tensor.set_(flat.storage(), flat.storage_offset() + offset, like.sizes(),
              like.strides());
  return tensor;
}

}  // namespace

Arena::Arena(std::vector<ArenaEntry> entries, bool with_gradients) {
  HEADROOM_CHECK(!entries.empty(), "an arena of nothing");
  at::NoGradGuard no_grad;
  const auto options = entries.front().tensor->options().requires_grad(false);
  const int64_t alignment =
      kAlignmentBytes / static_cast<int64_t>(options.dtype().itemsize());

  int64_t size = 0;
  for (const ArenaEntry& entry : entries) {
    HEADROOM_CHECK(
        entry.tensor->is_cpu() && entry.tensor->dtype() == options.dtype(),
        entry.name + " differs in device or type from " + entries.front().name);
    HEADROOM_CHECK(entry.tensor->is_non_overlapping_and_dense(),
                   entry.name + " is not dense");
    slots_.push_back({entry.name, size, entry.tensor->numel()});
    size = round_up(size + entry.tensor->numel(), alignment);
  }

  values_ = at::zeros({size}, options);
  if (with_gradients) gradients_ = at::zeros({size}, options);
  for (size_t i = 0; i < entries.size(); ++i) {
    at::Tensor tensor = window(values_, slots_[i].offset, *entries[i].tensor);
    tensor.copy_(*entries[i].tensor);
    if (with_gradients) {
      tensor.set_requires_grad(true);
      tensor.mutable_grad() = window(gradients_, slots_[i].offset, tensor);
    }
    *entries[i].tensor = tensor;
    entries_.push_back(std::move(tensor));
  }
}

const at::Tensor& Arena::entry(int64_t slot) const {
  return entries_.at(static_cast<size_t>(slot));
}

at::Tensor Arena::view(int64_t slot, const at::Tensor& flat) const {
  HEADROOM_CHECK(flat.dim() == 1 && flat.numel() == size(),
                 "a buffer of " + std::to_string(flat.numel()) +
                     " elements seen through an arena of " +
                     std::to_string(size()));
  return window(flat, slots_.at(static_cast<size_t>(slot)).offset, entry(slot));
}

void Arena::zero_gradients() {
  HEADROOM_CHECK(gradients_.defined(), "an arena without gradients");
  gradients_.zero_();
}

}  // namespace headroom
