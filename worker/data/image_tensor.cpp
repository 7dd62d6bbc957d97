#include "worker/data/image_tensor.h"

#include <ATen/ops/from_blob.h>

#include <cstdlib>
#include <new>

namespace headroom {

at::Tensor make_image_tensor(int64_t n, int64_t height, int64_t width,
                             int64_t bands) {
  constexpr size_t kAlignment = 64;
  const auto bytes = static_cast<size_t>(n * height * width * bands);
  // aligned_alloc wants whole multiples, and a batch may be empty.
  void* data =
      std::aligned_alloc(kAlignment, (bytes / kAlignment + 1) * kAlignment);
  if (data == nullptr) throw std::bad_alloc();
  return at::from_blob(
      data, {n, height, width, bands}, [](void* memory) { std::free(memory); },
      at::TensorOptions().dtype(at::kByte));
}

}  // namespace headroom
