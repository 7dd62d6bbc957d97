// This machine: its name, its addresses, its cores, the folder of our programs.
//
// Threads: safe from any thread.
#pragma once

#include <filesystem>
#include <string>

namespace headroom::cli {

// The number of threads that this process can run at once: the cores of its
// affinity mask, which mpirun may have set, or a container's quota.
int usable_cores();

// An IPv4 address at which other hosts reach this one: the address of the host
// name, else of the first interface that is up. Throws Error if there is none.
std::string host_address();

// Whether the host name resolves to an address now.
bool resolves(const std::string& host);

// The loopback address that `host` resolves to on this machine; "" if it does
// not resolve to loopback, or is written as a loopback address itself.
std::string loopback_address_of(const std::string& host);

// The local address that is used to reach HOST:PORT. Peers on the coordinator's
// network can use it to reach this process.
std::string address_towards(const std::string& host_and_port);

// The folder of the running program, which also contains the other programs.
std::filesystem::path program_folder();

// "HOST:PORT" -> HOST. Throws Error (exit 2) that names `flag` if the text has
// another form.
std::string host_of(const std::string& host_and_port, const std::string& flag);

}  // namespace headroom::cli
