#include "tests/support/nccl_shim/element_sums.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstdint>
#include <stdexcept>

namespace headroom::nccl_shim {
namespace {

template <typename T>
void reduce_as(char* to, const char* from, size_t bytes,
               ncclRedOp_t operation) {
  auto* const target = reinterpret_cast<T*>(to);
  const auto* const source = reinterpret_cast<const T*>(from);
  for (size_t i = 0; i < bytes / sizeof(T); ++i) {
    target[i] = operation == ncclMax ? std::max(target[i], source[i])
                                     : static_cast<T>(target[i] + source[i]);
  }
}

template <typename Use>
auto as_type(ncclDataType_t type, const Use& use) {
  switch (type) {
    case ncclFloat32:
      return use(float());
    case ncclFloat64:
      return use(double());
    case ncclInt64:
      return use(int64_t());
    case ncclUint8:
      return use(uint8_t());
    case ncclBfloat16:
      return use(c10::BFloat16());
    case ncclFloat16:
      return use(c10::Half());
    default:
      throw std::invalid_argument("a type that the shim does not know");
  }
}

}  // namespace

size_t size_of(ncclDataType_t type) {
  return as_type(type, [](auto zero) { return sizeof(zero); });
}

void reduce_into(char* to, const char* from, size_t bytes, ncclDataType_t type,
                 ncclRedOp_t operation) {
  as_type(type, [&](auto zero) {
    reduce_as<decltype(zero)>(to, from, bytes, operation);
  });
}

}  // namespace headroom::nccl_shim
