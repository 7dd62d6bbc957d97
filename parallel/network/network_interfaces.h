// The network interfaces of this machine: addresses, and speed as reported by
// the kernel.
//
// `sys` is the root of the kernel's device files; tests pass another folder.
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
  int64_t megabits_per_second = 0;  // 0 if the kernel does not report it

  bool operator==(const NetworkInterface&) const = default;
};

// Interfaces that are up and have an IPv4 address, in the kernel's order.
std::vector<NetworkInterface> network_interfaces(
    const std::filesystem::path& sys = "/sys");

// Devices that bypass the kernel, such as InfiniBand or EFA: "mlx5_0".
std::vector<std::string> rdma_devices(
    const std::filesystem::path& sys = "/sys");

// "eth0 (10.0.0.5, 10 Gbit/s), eth1 (10.1.0.5)".
std::string interfaces_text(const std::vector<NetworkInterface>& interfaces);

// Returns the interface of that name. Throws Error (tag "network", exit 2) that
// lists the existing interfaces.
NetworkInterface interface_named(const std::string& name,
                                 const std::vector<NetworkInterface>& all);

// Returns the name of the interface with this address; "" if there is none.
std::string interface_with(const std::string& address,
                           const std::vector<NetworkInterface>& all);

// Describes network hardware that a run over the interface with `address`
// leaves unused, one sentence each: a faster interface, and devices that NCCL
// uses only with a library that is not loaded. `speaks_nccl`: the run uses
// NCCL.
std::vector<std::string> unused_network(
    const std::string& address, const std::vector<NetworkInterface>& all,
    const std::vector<std::string>& rdma, bool speaks_nccl);

}  // namespace headroom
