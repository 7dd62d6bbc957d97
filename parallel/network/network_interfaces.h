// The network interfaces of this machine: their addresses, and how fast the
// kernel says they are.
//
// `sys` is where the kernel shows devices; tests have one of their own.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace headroom {

struct NetworkInterface {
  std::string name;
  std::string address;  // IPv4
  bool is_loopback = false;
  int64_t megabits_per_second = 0;  // 0: the kernel does not say

  bool operator==(const NetworkInterface&) const = default;
};

// Those that are up and have an IPv4 address, in the kernel's order.
std::vector<NetworkInterface> network_interfaces(
    const std::filesystem::path& sys = "/sys");

// Devices that bypass the kernel, as of InfiniBand or EFA: "mlx5_0".
std::vector<std::string> rdma_devices(
    const std::filesystem::path& sys = "/sys");

// "eth0 (10.0.0.5, 10 Gbit/s), eth1 (10.1.0.5)".
std::string interfaces_text(const std::vector<NetworkInterface>& interfaces);

// The one with this name. Throws Error (tag "network", exit 2) that lists those
// that there are.
NetworkInterface interface_named(const std::string& name,
                                 const std::vector<NetworkInterface>& all);

// The name of the one with this address; "" where it is none's.
std::string interface_with(const std::string& address,
                           const std::vector<NetworkInterface>& all);

// What a run over the interface with `address` leaves unused, a sentence each:
// a faster interface, and devices that NCCL uses only with a library that is
// not loaded. `speaks_nccl`: the run's tensors are on cards.
std::vector<std::string> unused_network(
    const std::string& address, const std::vector<NetworkInterface>& all,
    const std::vector<std::string>& rdma, bool speaks_nccl);

}  // namespace headroom
