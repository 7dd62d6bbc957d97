#include "parallel/zero/layer_gather.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>

#include <string>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/memory_category.h"
#include "parallel/base/text.h"

namespace headroom::zero {

LayerGather::LayerGather(const ShardMap& map, std::vector<at::Tensor> layers,
                         collectives::Communicator& ranks)
    : map_(map), layers_(std::move(layers)), ranks_(ranks) {
  HEADROOM_CHECK(
      map.num_ranks() == ranks.size() &&
          map.num_layers() == static_cast<int64_t>(layers_.size()),
      cat("a map of ", map.num_layers(), " layers for ", map.num_ranks(),
          " ranks, not ", layers_.size(), " and ", ranks.size()));
  if (layers_.empty()) return;
  const at::NoGradGuard no_grad;
  shard_ = at::empty({map.shard_size()}, layers_.front().options());
  for (int64_t layer = 0; layer < map.num_layers(); ++layer) {
    const at::Tensor& whole = layers_[static_cast<size_t>(layer)];
    HEADROOM_CHECK(whole.numel() == map.padded_layer_size(layer),
                   cat("layer ", layer));
    const int64_t size = map.slice_size(layer);
    shard_.narrow(0, map.shard_offset(layer), size)
        .copy_(whole.narrow(0, ranks.rank() * size, size));
    release_memory(whole);
  }
}

std::unique_ptr<collectives::Work> LayerGather::begin_gather(int64_t layer) {
  const at::Tensor& whole = layers_.at(static_cast<size_t>(layer));
  restore_memory(whole);
  return ranks_.all_gather_async(
      whole,
      shard_.narrow(0, map_.shard_offset(layer), map_.slice_size(layer)));
}

void LayerGather::release(int64_t layer) {
  release_memory(layers_.at(static_cast<size_t>(layer)));
}

bool LayerGather::is_whole(int64_t layer) const {
  return has_memory(layers_.at(static_cast<size_t>(layer)));
}

namespace {

c10::StorageImpl& storage_of(const at::Tensor& flat) {
  return *flat.storage().unsafeGetStorageImpl();
}

size_t bytes_of(const at::Tensor& flat) {
  return static_cast<size_t>(flat.numel()) * flat.element_size();
}

}  // namespace

bool has_memory(const at::Tensor& flat) {
  return storage_of(flat).nbytes() == bytes_of(flat);
}

void release_memory(const at::Tensor& flat) {
  HEADROOM_CHECK(has_memory(flat),
                 "a layer that has no storage of its own, or none any more");
  storage_of(flat).set_data_ptr_noswap(at::DataPtr(nullptr, flat.device()));
  storage_of(flat).set_nbytes(static_cast<size_t>(0));
}

void restore_memory(const at::Tensor& flat) {
  HEADROOM_CHECK(storage_of(flat).nbytes() == 0, "a layer that has its memory");
  const MemoryCategoryScope scope(MemoryCategory::kCommunication);
  const c10::DeviceGuard guard(flat.device());
  at::DataPtr memory =
      c10::GetAllocator(flat.device().type())->allocate(bytes_of(flat));
  storage_of(flat).set_data_ptr_noswap(std::move(memory));
  storage_of(flat).set_nbytes(bytes_of(flat));
}

}  // namespace headroom::zero
