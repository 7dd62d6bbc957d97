#include "worker/run/run_nccl.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>

#include "parallel/base/check.h"

namespace headroom::run {
namespace {

using ::testing::HasSubstr;

constexpr double kGiga = 1e9;

NcclRates two_machines(double between) {
  return {"AWS Libfabric", 2, 8, between * kGiga, 370 * kGiga};
}

TEST(RunNccl, TheFirstLineNamesTransportAndRates) {
  EXPECT_EQ(nccl_rates_text(two_machines(41)),
            "NCCL: AWS Libfabric, 41 GB/s between machines, 370 GB/s inside");
  EXPECT_EQ(nccl_rates_text({"TCP sockets", 2, 1, 1.2e9, 0}),
            "NCCL: TCP sockets, 1.2 GB/s between machines");
  EXPECT_EQ(nccl_rates_text({"TCP sockets", 1, 8, 0, 370e9}),
            "NCCL: 370 GB/s between the cards of this machine");
}

TEST(RunNccl, TheCatalogueKnowsACardByItsDriversName) {
  const CataloguedRates p5 = catalogued_rates("NVIDIA H100 80GB HBM3", 8);
  // Several machines have eight of these cards. The machine with the slowest
  // network is used.
  EXPECT_EQ(p5.machine, "Google a3-highgpu-8g");
  EXPECT_DOUBLE_EQ(p5.between_machines, 125 * kGiga);
  EXPECT_DOUBLE_EQ(p5.inside_machine, 450 * kGiga);
  EXPECT_EQ(catalogued_rates("NVIDIA H100 80GB HBM3", 5).machine, "");
  EXPECT_EQ(catalogued_rates("test device", 2).machine, "");
}

TEST(RunNccl, ATenthOfTheCatalogueIsWarnedOf) {
  const CataloguedRates p5 = catalogued_rates("NVIDIA H100 80GB HBM3", 8);
  EXPECT_EQ(slow_nccl_warning(two_machines(41), p5), "");
  NcclRates slow = two_machines(2);
  slow.transport = "TCP sockets";
  const std::string warning = slow_nccl_warning(slow, p5);
  EXPECT_THAT(warning, HasSubstr("2 GB/s between machines, where Google "
                                 "a3-highgpu-8g has 125 GB/s"));
  EXPECT_THAT(warning, HasSubstr("TCP sockets is used"));
  EXPECT_THAT(warning, HasSubstr("libibverbs"));
  EXPECT_EQ(slow_nccl_warning(slow, {}), "") << "nothing to compare with";
}

TEST(RunNccl, ASlowLinkInsideAMachineHasOtherCauses) {
  const NcclRates slow = {"TCP sockets", 1, 8, 0, 9e9};
  EXPECT_THAT(slow_nccl_warning(slow, catalogued_rates("NVIDIA H100 80GB", 8)),
              HasSubstr("nvidia-smi topo -m"));
}

TEST(RunNccl, ARequiredRateRefusesWithBothNumbers) {
  EXPECT_NO_THROW(require_rate(two_machines(41), 0));
  EXPECT_NO_THROW(require_rate(two_machines(41), 40));
  try {
    require_rate(two_machines(3), 40);
    FAIL() << "3 GB/s are not 40";
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kRequest);
    EXPECT_THAT(error.what(), HasSubstr("3 GB/s between machines over AWS "
                                        "Libfabric, and --require-rate asks "
                                        "for 40 GB/s"));
  }
  try {
    require_rate({"", 1, 8, 0, 9e9}, 10);
    FAIL() << "9 GB/s are not 10";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("9 GB/s inside the machine, and --require-rate asks "
                          "for 10 GB/s: usual causes: cards without NVLink"));
    EXPECT_THAT(error.what(), HasSubstr("leave --require-rate out"));
  }
}

TEST(RunNccl, AnInterfaceThatIsNotThereIsRefusedWithThoseThatAre) {
  setenv("NCCL_SOCKET_IFNAME", "nosuch0", 1);
  try {
    check_nccl_environment();
    ADD_FAILURE() << "there is no such interface";
  } catch (const Error& error) {
    EXPECT_THAT(error.what(),
                HasSubstr("[nccl] NCCL_SOCKET_IFNAME=nosuch0 names no "
                          "interface of this machine: name one of lo "));
  }
  setenv("NCCL_SOCKET_IFNAME", "lo", 1);
  EXPECT_NO_THROW(check_nccl_environment());
  unsetenv("NCCL_SOCKET_IFNAME");
}

}  // namespace
}  // namespace headroom::run
