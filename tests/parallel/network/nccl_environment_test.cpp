#include "parallel/network/nccl_environment.h"

#include <gtest/gtest.h>

namespace headroom {
namespace {

const std::vector<std::string> kNames = {"lo", "eth0", "eth1", "docker0"};

TEST(NcclEnvironment, AnInterfaceIsNamedByItsPrefixOrItsWholeName) {
  for (const char* value :
       {"", "eth", "eth0", "ib,eth", "=eth1", "^docker,lo", "^=docker0"}) {
    EXPECT_EQ(socket_interface_fault(value, kNames), "") << value;
  }
}

TEST(NcclEnvironment, UnknownInterfacesAreReported) {
  EXPECT_EQ(socket_interface_fault("ens", kNames),
            "NCCL_SOCKET_IFNAME=ens names no interface of this machine");
  EXPECT_NE(socket_interface_fault("=eth", kNames), "");
  EXPECT_EQ(socket_interface_fault("^lo,eth,docker", kNames),
            "NCCL_SOCKET_IFNAME=^lo,eth,docker excludes all interfaces of this "
            "machine");
}

TEST(NcclEnvironment, ThisMachineHasLoopback) {
  EXPECT_EQ(socket_interface_fault("lo", interface_names()), "");
}

TEST(NcclEnvironment, APluginNamesItself) {
  EXPECT_EQ(transport_name("AWS Libfabric", true, true), "AWS Libfabric");
  EXPECT_EQ(transport_name("", true, true), "InfiniBand or RoCE");
  EXPECT_EQ(transport_name("", true, false), "TCP sockets");
  EXPECT_EQ(transport_name("", false, true), "TCP sockets");
  EXPECT_EQ(nccl_transport(), "TCP sockets") << "no NCCL in this program";
}

}  // namespace
}  // namespace headroom
