// This machine: its name, its addresses, its cores, where our programs lie.
//
// Threads: safe from any thread.
#pragma once

#include <filesystem>
#include <string>

namespace headroom::cli {

std::string host_name();

// Cores this process may use (an affinity mask and mpirun's binding counted).
int usable_cores();

// An IPv4 address under which other hosts reach this one: the host name's, else
// that of the first interface that is up. Throws Error if there is none.
std::string host_address();

// Whether the name of a host has an address now.
bool resolves(const std::string& host);

// The address of loopback that `host` stands for on this machine; "" where it
// stands for none.
std::string loopback_address_of(const std::string& host);

// The local address from which HOST:PORT is reached: what peers on the same
// network as the coordinator can use to reach this process.
std::string address_towards(const std::string& host_and_port);

// The folder of the running program; its siblings are started from there.
std::filesystem::path program_folder();

// "HOST:PORT" -> HOST. Throws Error (exit 2) naming `flag` if it is not that.
std::string host_of(const std::string& host_and_port, const std::string& flag);

}  // namespace headroom::cli
