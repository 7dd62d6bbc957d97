#include "worker/run/run_network.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "parallel/base/check.h"
#include "tests/support/in_memory_store.h"

namespace headroom::run {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

// The refusal of rank 1 of two; "" if it may connect.
std::string refusal(const std::string& address, int64_t machine) {
  InMemoryStore store;
  say_here(store, 0, 7);
  say_here(store, 1, machine);
  try {
    check_address(store, 1, 2, address, machine);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kRequest);
    return error.what();
  }
  return "";
}

TEST(RunNetwork, AnAddressOfLoopbackIsRefusedAmongSeveralMachines) {
  EXPECT_THAT(refusal("127.0.1.1", 8),
              AllOf(HasSubstr("[network] rank 1 would wait for its peers at "
                              "127.0.1.1, which rank 0 on another machine "
                              "cannot reach"),
                    HasSubstr("/etc/hosts"), HasSubstr("--interface NAME"),
                    HasSubstr("lo (127.0.0.1)")));
}

TEST(RunNetwork, OnOneMachineAndWithARealAddressNoRankIsRefused) {
  EXPECT_EQ(refusal("127.0.0.1", 7), "");
  EXPECT_EQ(refusal("10.0.0.6", 8), "");
}

}  // namespace
}  // namespace headroom::run
