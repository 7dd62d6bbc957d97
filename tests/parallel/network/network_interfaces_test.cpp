#include "parallel/network/network_interfaces.h"

#include <gtest/gtest.h>

#include <fstream>

#include "parallel/base/check.h"

namespace headroom {
namespace {

namespace fs = std::filesystem;

// Makes a folder like /sys with these files.
fs::path made_sys(
    const std::string& name,
    const std::vector<std::pair<std::string, std::string>>& files) {
  const fs::path sys = fs::path(::testing::TempDir()) / name;
  fs::remove_all(sys);
  for (const auto& [path, text] : files) {
    fs::create_directories((sys / path).parent_path());
    std::ofstream(sys / path) << text;
  }
  return sys;
}

const std::vector<NetworkInterface> kTwo = {
    {"lo", "127.0.0.1", true, 0},
    {"eth0", "10.0.0.5", false, 1000},
    {"eth1", "10.1.0.5", false, 100000}};

TEST(NetworkInterfaces, LoopbackIsThereAndItsSpeedIsTheKernelsFile) {
  const auto all = network_interfaces(made_sys(
      "sys_speed",
      {{"class/net/lo/speed", "2500"}, {"class/net/lo/device/vendor", "0x1"}}));
  const NetworkInterface loopback = interface_named("lo", all);
  EXPECT_TRUE(loopback.is_loopback);
  EXPECT_EQ(loopback.address, "127.0.0.1");
  EXPECT_EQ(loopback.megabits_per_second, 2500);
}

TEST(NetworkInterfaces, AnUnknownSpeedIsZero) {
  const auto all = network_interfaces(made_sys(
      "sys_none",
      {{"class/net/lo/speed", "-1"}, {"class/net/lo/device/vendor", "0x1"}}));
  EXPECT_EQ(interface_named("lo", all).megabits_per_second, 0);
}

TEST(NetworkInterfaces, ABridgeOfContainersHasNoSpeed) {
  const auto all = network_interfaces(
      made_sys("sys_bridge", {{"class/net/lo/speed", "10000"}}));
  EXPECT_EQ(interface_named("lo", all).megabits_per_second, 0);
}

TEST(NetworkInterfaces, ANameThatIsNotThereIsRefusedWithThoseThatAre) {
  try {
    interface_named("ib0", kTwo);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(),
                 "[network] --interface ib0: no interface of this machine that "
                 "is up with an IPv4 address has this name: there are: lo "
                 "(127.0.0.1), eth0 (10.0.0.5, 1 Gbit/s), eth1 (10.1.0.5, 100 "
                 "Gbit/s)");
    EXPECT_EQ(error.exit_code(), ExitCode::kRequest);
  }
}

TEST(NetworkInterfaces, AnAddressHasANameWhereItIsAnInterfaces) {
  EXPECT_EQ(interface_with("10.1.0.5", kTwo), "eth1");
  EXPECT_EQ(interface_with("10.2.0.5", kTwo), "");
}

TEST(UnusedNetwork, AFasterInterfaceIsNamedWithTheFlagThatTakesIt) {
  EXPECT_EQ(unused_network("10.0.0.5", kTwo, {}, false),
            std::vector<std::string>{
                "tensors go over eth0 (10.0.0.5, 1 Gbit/s), but eth1 "
                "(10.1.0.5, 100 Gbit/s) is faster: give --interface eth1 on "
                "every machine, if it joins them"});
  EXPECT_TRUE(unused_network("10.1.0.5", kTwo, {}, false).empty());
  EXPECT_TRUE(unused_network("127.0.0.1", kTwo, {"mlx5_0"}, true).empty());
}

TEST(UnusedNetwork, RdmaDevicesAreNamedWhereTensorsAreOnCards) {
  const auto devices = rdma_devices(
      made_sys("sys_rdma", {{"class/infiniband/rdmap16s27/node_type", "7"},
                            {"class/infiniband/mlx5_0/node_type", "1"}}));
  EXPECT_EQ(devices, (std::vector<std::string>{"mlx5_0", "rdmap16s27"}));
  EXPECT_TRUE(rdma_devices(made_sys("sys_empty", {})).empty());
  const auto said = unused_network("10.1.0.5", kTwo, devices, true);
  ASSERT_EQ(said.size(), 1u);
  EXPECT_NE(said[0].find("mlx5_0, rdmap16s27"), std::string::npos) << said[0];
  EXPECT_TRUE(unused_network("10.1.0.5", kTwo, devices, false).empty());
}

}  // namespace
}  // namespace headroom
