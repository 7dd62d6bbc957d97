// Adds elements of NCCL's types in the same way as a device.
#pragma once

#include <nccl.h>

#include <cstddef>

namespace headroom::nccl_shim {

size_t size_of(ncclDataType_t type);

// to[i] = to[i] + from[i], or their maximum.
void reduce_into(char* to, const char* from, size_t bytes, ncclDataType_t type,
                 ncclRedOp_t operation);

}  // namespace headroom::nccl_shim
