#include "parallel/cuda/nccl_advice.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/cuda/nccl_limits.h"

namespace headroom::cuda {
namespace {

using ::testing::HasSubstr;

TEST(NcclAdvice, ASmallSharedMemoryNamesTheFlagOfDocker) {
  EXPECT_THAT(
      nccl_advice("Error while creating shared memory segment "
                  "/dev/shm/nccl-x7Kb2Q (size 9637888), error: No space left "
                  "on device (28)"),
      HasSubstr("--shm-size=8g"));
}

TEST(NcclAdvice, LockedMemoryNamesItsLimit) {
  for (const char* message :
       {"Call to ibv_reg_mr failed with error Cannot allocate memory",
        "Call to ibv_create_cq failed with error Cannot allocate memory",
        "NET/OFI Unable to register memory (type = 2). RC: -12, Error: "
        "fi_mr_regattr Cannot allocate memory"}) {
    EXPECT_THAT(nccl_advice(message), HasSubstr("--ulimit memlock=-1"))
        << message;
  }
}

TEST(NcclAdvice, NoInterfaceNamesTheVariable) {
  EXPECT_THAT(nccl_advice("Bootstrap : no socket interface found"),
              HasSubstr("NCCL_SOCKET_IFNAME"));
}

TEST(NcclAdvice, OtherMessagesGetNone) {
  EXPECT_EQ(nccl_advice("remote process exited or there was a network error"),
            "");
  EXPECT_EQ(nccl_advice("Cuda failure 'out of memory'"), "");
  EXPECT_EQ(nccl_advice(""), "");
}

TEST(NcclVersion, NewerOfTheSameMajorServes) {
  EXPECT_EQ(nccl_version_refusal(22809, 22809, "libnccl.so.2"), "");
  EXPECT_EQ(nccl_version_refusal(22809, 23001, "libnccl.so.2"), "");
}

TEST(NcclVersion, AnOlderOneIsNamedWithItsFile) {
  EXPECT_EQ(nccl_version_refusal(22809, 21805, "/opt/lib/libnccl.so.2"),
            "NCCL 2.18.5 was loaded from /opt/lib/libnccl.so.2, and this "
            "program was built with 2.28.9");
  EXPECT_NE(nccl_version_refusal(22809, 30000, "x"), "");
}

TEST(NcclRoots, EachRootIsTheFirstOfItsRanks) {
  EXPECT_EQ(roots_of(1), 1);
  EXPECT_EQ(roots_of(256), 1);
  EXPECT_EQ(roots_of(257), 2);
  EXPECT_EQ(roots_of(4096), 16);
  EXPECT_EQ(first_rank_of_root(0, 600), 0);
  EXPECT_EQ(first_rank_of_root(1, 600), 200);
  EXPECT_EQ(first_rank_of_root(1, 257), 129);
  EXPECT_EQ(first_rank_of_root(15, 4096), 3840);
}

}  // namespace
}  // namespace headroom::cuda
