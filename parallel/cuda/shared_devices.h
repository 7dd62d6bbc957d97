// Refuses two ranks on one device before NCCL is asked, which would hang or
// fail with an address.
#pragma once

#include <chrono>
#include <string>

#include "parallel/base/key_value_store.h"

namespace headroom::cuda {

// Collective over `size` ranks through the store; every rank throws the same
// Error (exit 2) if two name the same device. CommunicationError if one does
// not answer.
void refuse_shared_devices(KeyValueStore& store, const std::string& prefix,
                           int rank, int size, const std::string& uuid,
                           std::chrono::milliseconds timeout);

}  // namespace headroom::cuda
