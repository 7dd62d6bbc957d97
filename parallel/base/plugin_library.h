// A plugin is a part of the program in a shared library of its own, because it
// asks for libraries that not every machine has. It lies beside the running
// program and exports one function, its factory.
//
// Errors: none is thrown; whoever loads it knows the remedy.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace headroom {

// The file beside the program, where the build puts it, or the one that the
// environment's `variable` names: tests lie in another folder.
inline std::string plugin_path(const char* variable, const char* file_name) {
  if (const char* const given = std::getenv(variable)) return given;
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return (program.parent_path() / file_name).string();
}

inline bool plugin_exists(const std::string& path) {
  std::error_code ignored;
  return std::filesystem::exists(path, ignored);
}

template <typename Factory>
struct PluginLibrary {
  Factory factory = nullptr;
  std::string error;  // why there is none; the linker names what is missing
  bool is_loaded = false;  // the library is there, and what it asks for
};

// `visibility`: RTLD_LOCAL, or RTLD_GLOBAL where the plugin's own libraries
// expect its symbols. It is never unloaded.
template <typename Factory>
PluginLibrary<Factory> open_plugin(const std::string& path,
                                   const char* factory_name,
                                   int visibility = RTLD_LOCAL) {
  void* const library = dlopen(path.c_str(), RTLD_NOW | visibility);
  void* const found =
      library == nullptr ? nullptr : dlsym(library, factory_name);
  if (found != nullptr) return {reinterpret_cast<Factory>(found), "", true};
  const char* const text = dlerror();
  return {nullptr, text != nullptr ? text : "no reason given",
          library != nullptr};
}

// What a plugin's factory makes, for a plugin whose interface has a version.
template <typename Api>
struct PluginApi {
  Api* api = nullptr;  // lives until the process ends
  std::string reason;  // why there is none, and what to do
};

struct PluginDescription {
  const char* variable;  // plugin_path takes these two
  const char* file_name;
  const char* factory;
  int version;
  const char* lack;       // "this build reads no videos"
  const char* packages;   // what building it takes
  const char* libraries;  // what running it takes
};

template <typename Api>
PluginApi<Api> load_plugin_api(const PluginDescription& plugin) {
  const auto not_built = [&plugin](const std::string& why) {
    return PluginApi<Api>{
        nullptr, why + "; bash deploy/local/setup.sh and build.sh make it, " +
                     "with Debian's " + plugin.packages};
  };
  const std::string path = plugin_path(plugin.variable, plugin.file_name);
  if (!plugin_exists(path)) {
    return not_built(std::string(plugin.lack) + ": there is no " + path);
  }
  const auto library = open_plugin<Api* (*)(int)>(path, plugin.factory);
  if (!library.is_loaded) {
    return {nullptr, library.error + "; install " + plugin.libraries};
  }
  if (library.factory == nullptr) return not_built(library.error);
  Api* const api = library.factory(plugin.version);
  if (api == nullptr) {
    return not_built(path + " is of another version than this program");
  }
  return {api, ""};
}

}  // namespace headroom
