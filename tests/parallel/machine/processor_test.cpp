#include "parallel/machine/processor.h"

#include <gtest/gtest.h>

namespace headroom {
namespace {

TEST(Processor, OnednnsLimitIsRead) {
  for (const char* value : {"", "ALL", "DEFAULT", "AVX512_CORE_AMX",
                            "avx512_core_amx_fp16", "AVX10_1_512_AMX"}) {
    EXPECT_EQ(most_allowed_isa(value), OnednnIsa::kAmx) << value;
  }
  for (const char* value :
       {"AVX512_CORE", "avx512_core", "AVX512_CORE_BF16", "AVX10_1_512"}) {
    EXPECT_EQ(most_allowed_isa(value), OnednnIsa::kAvx512) << value;
  }
  for (const char* value : {"SSE41", "AVX", "AVX2", "avx2", "AVX2_VNNI"}) {
    EXPECT_EQ(most_allowed_isa(value), OnednnIsa::kAvx2) << value;
  }
}

}  // namespace
}  // namespace headroom
