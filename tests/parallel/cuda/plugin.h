// The built plugin, for tests: its file, and the DeviceApi that it gives.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "parallel/devices/compute_device.h"

namespace headroom::cuda {

// Beside the test if both were copied to another machine, else in the build
// folder; "" if this build has no plugin.
inline std::string find_plugin() {
  const std::string beside = devices::device_plugin_path();
  return std::filesystem::exists(beside) ? beside : HEADROOM_CUDA_PLUGIN;
}
inline const std::string kPluginFile = find_plugin();

// Loaded once per process: before LibTorch is used.
inline const devices::DevicePlugin& plugin() {
  static const devices::DevicePlugin loaded =
      devices::load_device_plugin(kPluginFile);
  return loaded;
}

}  // namespace headroom::cuda

// Skips a test by name if there is no plugin file.
#define HEADROOM_NEEDS_PLUGIN_FILE()                                          \
  if (::headroom::cuda::kPluginFile.empty())                                  \
  GTEST_SKIP() << "this build has no CUDA plugin: no nvcc, NCCL or LibTorch " \
                  "with CUDA was found"
#define HEADROOM_NEEDS_PLUGIN()                       \
  HEADROOM_NEEDS_PLUGIN_FILE();                       \
  if (::headroom::cuda::plugin().api == nullptr)      \
  GTEST_SKIP() << "the CUDA plugin cannot be loaded " \
               << ::headroom::cuda::plugin().reason
#define HEADROOM_NEEDS_DEVICE()                            \
  HEADROOM_NEEDS_PLUGIN();                                 \
  if (::headroom::cuda::plugin().api->device_count() == 0) \
  GTEST_SKIP() << "there is no CUDA device"
