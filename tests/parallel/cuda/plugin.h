// The built plugin for tests: its file, and its DeviceApi.
#pragma once

#include <gtest/gtest.h>

#include <filesystem>
#include <string>

#include "parallel/devices/compute_device.h"

namespace headroom::cuda {

// The plugin is beside the test if both were copied to another machine, else in
// the build folder. Returns "" if this build has no plugin.
inline std::string find_plugin() {
  const std::string beside = devices::device_plugin_path();
  return std::filesystem::exists(beside) ? beside : HEADROOM_CUDA_PLUGIN;
}
inline const std::string kPluginFile = find_plugin();

// Loads the plugin once per process. Call it before LibTorch is used.
inline const devices::DevicePlugin& plugin() {
  static const devices::DevicePlugin loaded =
      devices::load_device_plugin(kPluginFile);
  return loaded;
}

// Returns the reason if there is no plugin or no device; "" if both exist.
inline std::string missing_plugin() {
  if (kPluginFile.empty()) {
    return "this build has no CUDA plugin: no nvcc, NCCL or LibTorch with CUDA "
           "was found";
  }
  if (plugin().api != nullptr) return "";
  return "the CUDA plugin cannot be loaded " + plugin().reason;
}
inline std::string missing_device() {
  const std::string missing = missing_plugin();
  if (!missing.empty() || plugin().api->device_count() > 0) return missing;
  return "there is no CUDA device";
}

}  // namespace headroom::cuda

// These macros skip a test by name.
#define HEADROOM_NEEDS_PLUGIN_FILE()         \
  if (::headroom::cuda::kPluginFile.empty()) \
  GTEST_SKIP() << "this build has no CUDA plugin"
#define HEADROOM_NEEDS_PLUGIN()                                       \
  if (const std::string missing = ::headroom::cuda::missing_plugin(); \
      !missing.empty())                                               \
  GTEST_SKIP() << missing
#define HEADROOM_NEEDS_DEVICE()                                       \
  if (const std::string missing = ::headroom::cuda::missing_device(); \
      !missing.empty())                                               \
  GTEST_SKIP() << missing
