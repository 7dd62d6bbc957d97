// The effect of this machine's environment on NCCL: the interface selected by a
// variable, and the network library that NCCL has loaded.
#pragma once

#include <filesystem>
#include <string>
#include <vector>

namespace headroom {

// Why NCCL_SOCKET_IFNAME=`value` leaves NCCL without any of the interfaces
// `all`; "" if one is left. The value lists name prefixes; a leading "=" means
// exact names, "^" excludes the listed ones.
std::string socket_interface_fault(const std::string& value,
                                   const std::vector<std::string>& all);

// The names of all network interfaces, up or down.
std::vector<std::string> interface_names(
    const std::filesystem::path& sys = "/sys");

// The network that NCCL uses between machines: the name of its plugin ("AWS
// Libfabric"), "InfiniBand or RoCE", or "TCP sockets". Valid only after NCCL
// has connected: it then loads these libraries and uses the first that finds a
// device.
std::string nccl_transport();

// The result of nccl_transport() for given facts. `plugin` is the name that the
// loaded plugin gives itself, "" if no plugin is loaded.
std::string transport_name(const std::string& plugin, bool has_verbs,
                           bool has_rdma_device);

}  // namespace headroom
