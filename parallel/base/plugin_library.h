// A plugin is a part of the program in its own shared library, because it needs
// libraries that not every machine has. It is installed beside the program and
// exports one function, its factory.
//
// No function here throws: results carry the reason, and the caller adds a
// remedy.
#pragma once

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

namespace headroom {

// The path of a plugin: the value of the environment variable `variable` if it
// is set, else `file_name` beside the program, where the build puts it. Tests
// set the variable, because they are built in another folder.
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
  std::string error;       // the dynamic linker's message
  bool is_loaded = false;  // the library and the libraries it needs were loaded
};

// `visibility`: RTLD_LOCAL, or RTLD_GLOBAL if the plugin's own libraries need
// its symbols. The library is never unloaded.
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

// The interface that a plugin's factory returned, for plugins with a version.
template <typename Api>
struct PluginApi {
  Api* api = nullptr;  // valid until the process ends; nullptr on failure
  std::string reason;  // if `api` is nullptr: the failure and its remedy
};

struct PluginDescription {
  const char* variable;  // variable and file_name: see plugin_path()
  const char* file_name;
  const char* factory;
  // The version of the interface. The factory returns nullptr for another
  // version.
  int version;
  const char* lack;       // "this build reads no videos"
  const char* packages;   // Debian packages needed to build it
  const char* libraries;  // libraries needed to run it
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
