// Ranks of a generation over their CUDA devices.
#pragma once

#include <chrono>
#include <memory>
#include <string>

#include "parallel/base/key_value_store.h"
#include "parallel/collectives/communicator.h"

namespace headroom::devices {

struct DeviceCommunicatorOptions {
  int device = 0;
  // Of each single operation once the device comes to it, and of connecting.
  std::chrono::milliseconds timeout = std::chrono::seconds(20);
  // Two ranks on one device are refused otherwise: they take turns, so it is
  // for tests only, and NCCL needs another NCCL_HOSTID in each process.
  bool may_share_devices = false;
};

}  // namespace headroom::devices
