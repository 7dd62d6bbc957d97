#include "parallel/base/processor.h"

#include <gtest/gtest.h>

namespace headroom {
namespace {

TEST(Processor, OnednnsLimitIsRead) {
  for (const char* value : {"", "ALL", "DEFAULT", "AVX512_CORE", "avx512_core",
                            "AVX512_CORE_BF16", "AVX10_1_512"}) {
    EXPECT_TRUE(allows_avx512(value)) << value;
  }
  for (const char* value : {"SSE41", "AVX", "AVX2", "avx2", "AVX2_VNNI"}) {
    EXPECT_FALSE(allows_avx512(value)) << value;
  }
}

}  // namespace
}  // namespace headroom
