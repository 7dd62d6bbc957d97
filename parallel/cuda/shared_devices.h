// Refuses two ranks on one device before NCCL is asked, which would hang or
// fail with an address.
#pragma once

#include <string>

#include "parallel/collectives/communicator.h"

namespace headroom::cuda {

// Collective: one gather over `ranks`. Every rank throws the same Error (exit
// 2) if two name the same device. REQUIRES: a `uuid` of at most 127 bytes.
void refuse_shared_devices(collectives::Communicator& ranks,
                           const std::string& uuid);

}  // namespace headroom::cuda
