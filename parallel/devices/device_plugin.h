// Loads libheadroom_cuda.so into this process, in the main thread, before any
// other.
//
// It must come before LibTorch is first used: at::manual_seed or a backward
// before it caches that there is no CUDA for ever. Loading takes about a second
// and no device; so programs load it only when a device was asked for.
#pragma once

#include <string>

#include "parallel/devices/device_api.h"

namespace headroom::devices {

struct DevicePlugin {
  DeviceApi* api = nullptr;  // lives until the process ends
  std::string reason;        // why there is none
};

// The plugin beside the running program, where the build puts it, or the one
// that HEADROOM_DEVICE_PLUGIN names: tests bring a device of their own
// (tests/support/test_device).
std::string device_plugin_path();

DevicePlugin load_device_plugin(const std::string& path);

}  // namespace headroom::devices
