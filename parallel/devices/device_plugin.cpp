#include "parallel/devices/device_plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <system_error>

namespace headroom::devices {
namespace {

MemoryCategory category_of(int64_t bytes) {
  return MemoryCategoryScope::of_device(bytes);
}

std::string last_error() {
  const char* const text = dlerror();
  return text != nullptr ? text : "no reason given";
}

}  // namespace

std::string device_plugin_path() {
  if (const char* const given = std::getenv("HEADROOM_DEVICE_PLUGIN")) {
    return given;
  }
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return (program.parent_path() / "libheadroom_cuda.so").string();
}

DevicePlugin load_device_plugin(const std::string& path) {
  static constexpr HostServices kServices = {&category_of};
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    return {nullptr, "this build has no plugin for devices: no " + path};
  }
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (library == nullptr) return {nullptr, last_error()};
  const auto factory =
      reinterpret_cast<DeviceApiFactory>(dlsym(library, kDeviceApiFactory));
  if (factory == nullptr) return {nullptr, last_error()};
  DeviceApi* const api = factory(kDeviceApiVersion, &kServices);
  if (api == nullptr) {
    return {nullptr, path + " is of another version than this program"};
  }
  return {api, ""};
}

}  // namespace headroom::devices
