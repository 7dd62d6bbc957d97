// The stand-ins for Gloo's headers (parallel/collectives/gloo_stubs) declare
// functions that LibTorch defines, and define none themselves.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>

namespace headroom::collectives {
namespace {

// The library that defines a symbol of this process; "" if none does.
std::string library_of(const char* symbol) {
  Dl_info info = {};
  void* const address = dlsym(RTLD_DEFAULT, symbol);
  if (address == nullptr || dladdr(address, &info) == 0) return "";
  return info.dli_fname;
}

TEST(GlooStubs, TheyDeclareTheFunctionsOfLibTorch) {
  for (const char* symbol :
       {// gloo::Context
        "_ZN4gloo7Context16closeConnectionsEv",
        "_ZN4gloo7Context10setTimeoutENSt6chrono8durationIlSt5ratioILl1ELl1000E"
        "EEE",
        // The table of gloo::rendezvous::Store's only implementation here.
        "_ZTVN4c10d16ProcessGroupGloo9GlooStoreE",
        "_ZN4gloo9transport13UnboundBufferD1Ev"}) {
    EXPECT_THAT(library_of(symbol), testing::HasSubstr("libtorch_cpu"))
        << symbol;
  }
}

}  // namespace
}  // namespace headroom::collectives
