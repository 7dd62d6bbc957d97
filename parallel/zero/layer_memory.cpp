#include "parallel/zero/layer_memory.h"

#include <c10/core/Allocator.h>
#include <c10/core/DeviceGuard.h>

#include <utility>

#include "parallel/base/check.h"
#include "parallel/base/memory_category.h"

namespace headroom::zero {
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
