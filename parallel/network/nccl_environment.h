// What NCCL takes from this machine: the interface that the environment names,
// and the network library that it has loaded.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace headroom {

// Why NCCL_SOCKET_IFNAME, `value`, leaves NCCL without an interface of those
// named `all`; "" where it leaves one. It lists prefixes; "=" asks for whole
// names, "^" for all others.
std::string socket_interface_fault(const std::string& value,
                                   const std::vector<std::string>& all);

// The names of all interfaces, whatever their state.
std::vector<std::string> interface_names(
    const std::filesystem::path& sys = "/sys");

// The network over which NCCL leaves the machine: the name that its plugin
// gives itself ("AWS Libfabric"), "InfiniBand or RoCE" or "TCP sockets". Known
// once NCCL has connected: it looks for these libraries then, and takes the
// first that finds a device.
std::string nccl_transport();

// The same, decided: `plugin` is the loaded plugin's name for itself, "" where
// there is none.
std::string transport_name(const std::string& plugin, bool has_verbs,
                           bool has_rdma_device);

}  // namespace headroom
