#include <dlfcn.h>

#include <array>
#include <cstdio>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string>

#include "parallel/base/check.h"
#include "tests/parallel/cuda/plugin.h"

namespace headroom {
namespace {

std::string output_of(const std::string& command) {
  const std::unique_ptr<FILE, int (*)(FILE*)> pipe(popen(command.c_str(), "r"),
                                                   &pclose);
  std::string text;
  std::array<char, 4096> part;
  while (const size_t size = fread(part.data(), 1, part.size(), pipe.get())) {
    text.append(part.data(), size);
  }
  return text;
}

TEST(CudaPlugin, NeedsTheLibrariesThatRegisterCuda) {
  HEADROOM_NEEDS_PLUGIN_FILE();
  const std::string dynamic = output_of("readelf -W -d '" + kPluginFile + "'");
  // Dropped by a linker's --as-needed it would load, and have no kernels.
  EXPECT_NE(dynamic.find("[libtorch_cuda.so]"), std::string::npos) << dynamic;
  EXPECT_NE(dynamic.find("[libc10_cuda.so]"), std::string::npos) << dynamic;
  EXPECT_NE(dynamic.find("[libcudart.so.13]"), std::string::npos) << dynamic;
}

TEST(CudaPlugin, ExportsItsFactoryAlone) {
  HEADROOM_NEEDS_PLUGIN_FILE();
  std::istringstream lines(
      output_of("readelf -W --dyn-syms '" + kPluginFile + "'"));
  std::set<std::string> exported;
  for (std::string line; std::getline(lines, line);) {
    // Number: value size type binding visibility section name
    static const std::regex symbol(
        R"(^ +\d+: .* (GLOBAL|WEAK|UNIQUE) +\w+ +(\w+) (\S+).*)");
    std::smatch parts;
    if (std::regex_match(line, parts, symbol) && parts[2] != "UND") {
      exported.insert(parts[3]);
    }
  }
  EXPECT_EQ(exported, std::set<std::string>{kDeviceApiFactory});
}

TEST(CudaPlugin, LoadsWithoutADevice) {
  HEADROOM_NEEDS_PLUGIN();
  EXPECT_GE(plugin().api->device_count(), 0);
  EXPECT_EQ(plugin().reason, "");
  const int beyond = plugin().api->device_count();
  // The error's type is the program's own: it crosses the library's border.
  EXPECT_THROW(plugin().api->describe(beyond), Error);
  EXPECT_THROW(plugin().api->memory(beyond), Error);
  EXPECT_THROW(plugin().api->describe(-1), Error);
}

TEST(CudaPlugin, RefusesAnotherVersion) {
  HEADROOM_NEEDS_PLUGIN();
  void* const library =
      dlopen(kPluginFile.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr);
  const auto factory =
      reinterpret_cast<DeviceApiFactory>(dlsym(library, kDeviceApiFactory));
  EXPECT_EQ(factory(kDeviceApiVersion + 1, nullptr), nullptr);
  dlclose(library);
}

}  // namespace
}  // namespace headroom
