// Refuses two ranks on one device before NCCL is called, where they would hang
// or fail with an obscure message.
#pragma once

#include <string>

#include "parallel/collectives/communicator.h"

namespace headroom::cuda {

// Collective: one gather over `ranks`. If two ranks name the same device, all
// ranks throw the same Error (exit 2). REQUIRES: a `uuid` of at most 127 bytes.
void refuse_shared_devices(collectives::Communicator& ranks,
                           const std::string& uuid);

}  // namespace headroom::cuda
