// CoreBinding: on which cores a worker runs.
//
// A worker's memory is taken from the NUMA node that first touches it, so a
// worker that the system moves to another node computes on memory that is far
// away. On the CPU each is therefore bound to the node, or nodes, in which its
// share of this machine's cores lies; on a card, to the node that the card is
// attached to, which its copies and NCCL's threads use too. Within a node the
// system is free to move it, so that idle cores are used.
//
// mpirun binds each process of a small job to one core by default, and with it
// all that it starts: workers would share one core of many. A binding that
// nobody asked for is undone.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "deploy/cli/process/launcher_environment.h"

namespace headroom::cli {

// Ascending.
using Cores = std::vector<int>;

// The kernel's form: "0-3,8" -> 0, 1, 2, 3, 8. What is no list is empty.
Cores parse_cores(const std::string& list);

// The cores of each NUMA node, by the system's files below `folder`; empty
// where there are none.
std::vector<Cores> numa_nodes(
    const std::filesystem::path& folder = "/sys/devices/system/node");

// The nodes' cores, as far as `allowed`, in which the share of worker `index`
// of `count` lies. Empty: all of them, or too few for `threads`; nothing is to
// be bound. REQUIRES: 0 <= index < count.
Cores cores_of_worker(const std::vector<Cores>& nodes, const Cores& allowed,
                      int index, int count, int threads);

// The cores that are near the device at `bus_address` ("0000:3b:00.0") on the
// PCI bus, by the system's files below `folder`; empty where they do not tell.
Cores cores_near_device(
    const std::string& bus_address,
    const std::filesystem::path& folder = "/sys/bus/pci/devices");

// The cores of a worker whose card is near `near`, as far as `allowed`.
// Nothing: the system does not tell, or no core near it is allowed, and the
// worker is bound as on the CPU. Empty: all cores are near, or those are too
// few for `threads`; nothing is to be bound.
std::optional<Cores> cores_of_card_worker(const Cores& near,
                                          const Cores& allowed, int threads);

// Open MPI has bound this process, and nobody asked for it.
bool is_bound_by_default(const Environment& environment);

// This process's binding, as the system tells it.
Cores allowed_cores();

// Lets this process, and what it starts, use every core that its container or
// job may. Returns how many there are then.
int use_all_cores();

}  // namespace headroom::cli
