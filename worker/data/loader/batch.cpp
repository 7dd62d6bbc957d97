#include "worker/data/loader/batch.h"

#include <ATen/ops/from_blob.h>

#include <cstdlib>
#include <new>
#include <utility>

namespace headroom::loader {

at::Tensor make_image_tensor(int64_t n, int64_t height, int64_t width,
                             int64_t bands, const AllocateImages& allocate,
                             at::ScalarType type) {
  constexpr int64_t kAlignment = 64;
  const auto sample = static_cast<int64_t>(c10::elementSize(type));
  // aligned_alloc requires multiples of the alignment, and a batch may be
  // empty.
  const int64_t bytes =
      (n * height * width * bands * sample / kAlignment + 1) * kAlignment;
  const at::TensorOptions options = at::TensorOptions().dtype(type);
  const std::vector<int64_t> sizes = {n, height, width, bands};
  if (allocate) {
    std::shared_ptr<void> memory = allocate(bytes);
    void* const data = memory.get();
    return at::from_blob(
        data, sizes,
        [held = std::move(memory)](void*) mutable { held.reset(); }, options);
  }
  void* const data = std::aligned_alloc(static_cast<size_t>(kAlignment),
                                        static_cast<size_t>(bytes));
  if (data == nullptr) throw std::bad_alloc();
  return at::from_blob(
      data, sizes, [](void* memory) { std::free(memory); }, options);
}

std::vector<loss::LabelRow> labels_of(const Batch& batch,
                                      const plan::SampleRange& part) {
  std::vector<loss::LabelRow> rows;
  for (const loss::LabelRow& row : batch.labels) {
    const int64_t sample = row.image + batch.local_begin;
    if (sample < part.begin || sample >= part.end) continue;
    rows.push_back(row);
    rows.back().image = sample - part.begin;
  }
  return rows;
}

void assign_micro_batches(Batch& batch, const AssignTargets& assign,
                          const PackTargets& pack) {
  if (!assign) return;
  for (const plan::SampleRange& part : batch.micro_batches) {
    batch.targets.push_back(
        assign(labels_of(batch, part), batch.image_height, batch.image_width));
    if (!pack) continue;
    batch.packed_targets.push_back(pack(batch.targets.back(), part.size(),
                                        batch.image_height, batch.image_width));
  }
}

}  // namespace headroom::loader
