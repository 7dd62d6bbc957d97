#include <dlfcn.h>

#include <array>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <memory>
#include <regex>
#include <set>
#include <sstream>
#include <string>
#include <utility>

#include "parallel/base/check.h"
#include "tests/parallel/cuda/plugin.h"

namespace headroom::cuda {
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
  // If a linker's --as-needed dropped this library, the plugin would load, but
  // without kernels.
  EXPECT_NE(dynamic.find("[libtorch_cuda.so]"), std::string::npos) << dynamic;
  EXPECT_NE(dynamic.find("[libc10_cuda.so]"), std::string::npos) << dynamic;
  EXPECT_NE(dynamic.find("[libcudart.so.13]"), std::string::npos) << dynamic;
  EXPECT_NE(dynamic.find("[libnccl.so.2]"), std::string::npos) << dynamic;
  // Libraries that only other parts of the project need must not be listed.
  EXPECT_EQ(dynamic.find("[libmpi"), std::string::npos) << dynamic;
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
  EXPECT_EQ(exported, std::set<std::string>{devices::kDeviceApiFactory});
}

// The GPUs for which the file has code, read from the entries of its fat
// binaries, so that no tool is needed. Each fat binary is a header followed by
// entries; kind 2 is machine code, kind 1 is PTX.
std::set<std::pair<int, uint32_t>> device_code(const std::string& bytes) {
  const auto number = [&](size_t at, auto value) {
    std::memcpy(&value, bytes.data() + at, sizeof(value));
    return value;
  };
  std::set<std::pair<int, uint32_t>> found;  // kind, architecture
  const std::string magic = "\x50\xed\x55\xba\x01";
  for (size_t at = bytes.find(magic); at != std::string::npos;
       at = bytes.find(magic, at + 1)) {
    const size_t header = number(at + 6, uint16_t{0});
    const size_t end = at + header + number(at + 8, uint64_t{0});
    for (size_t entry = at + header; entry + 32 <= end && end <= bytes.size();
         entry +=
         number(entry + 4, uint32_t{0}) + number(entry + 8, uint64_t{0})) {
      found.insert(
          {number(entry, uint16_t{0}), number(entry + 28, uint32_t{0})});
      if (number(entry + 4, uint32_t{0}) == 0) break;
    }
  }
  return found;
}

TEST(CudaPlugin, HoldsCodeForTheGpusItIsBuiltFor) {
  HEADROOM_NEEDS_PLUGIN_FILE();
  std::ifstream file(kPluginFile, std::ios::binary);
  const auto code = device_code({std::istreambuf_iterator<char>(file), {}});
  constexpr int kPtx = 1, kMachineCode = 2;
  std::set<std::pair<int, uint32_t>> wanted = {{kPtx, 120}};
  for (const uint32_t capability : {75, 80, 86, 89, 90, 100, 120}) {
    wanted.insert({kMachineCode, capability});
  }
  EXPECT_EQ(code, wanted);
}

TEST(CudaPlugin, LoadsWithoutADevice) {
  HEADROOM_NEEDS_PLUGIN();
  EXPECT_GE(plugin().api->device_count(), 0);
  EXPECT_EQ(plugin().reason, "");
  const int beyond = plugin().api->device_count();
  // The error has the program's own type, although it is thrown by another
  // library.
  EXPECT_THROW(plugin().api->describe(beyond), Error);
  EXPECT_THROW(plugin().api->memory(beyond), Error);
  EXPECT_THROW(plugin().api->describe(-1), Error);
}

TEST(CudaPlugin, RefusesAnotherVersion) {
  HEADROOM_NEEDS_PLUGIN();
  void* const library =
      dlopen(kPluginFile.c_str(), RTLD_NOW | RTLD_LOCAL | RTLD_NOLOAD);
  ASSERT_NE(library, nullptr);
  const auto factory = reinterpret_cast<devices::DeviceApiFactory>(
      dlsym(library, devices::kDeviceApiFactory));
  EXPECT_EQ(factory(devices::kDeviceApiVersion + 1, nullptr), nullptr);
  dlclose(library);
}

}  // namespace
}  // namespace headroom::cuda
