// CoreBinding: chooses the cores on which a worker may run.
//
// Memory is allocated on the NUMA node that touches it first, so a worker that
// the kernel moves to another node computes on remote memory. On the CPU each
// worker is therefore bound to the node or nodes that contain its share of this
// machine's cores. A worker with a card is bound to the card's node, near which
// its copies and NCCL's threads also run. Within a node the kernel may move a
// worker, so that idle cores are used.
//
// mpirun binds each process of a small job to one core by default, and its
// children inherit this binding: all workers would share one core. A binding
// that the user did not ask for is removed.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "deploy/cli/process/launcher_environment.h"

namespace headroom::cli {

// Numbers of cores, in ascending order.
using Cores = std::vector<int>;

// Parses the kernel's form: "0-3,8" -> 0, 1, 2, 3, 8. Returns an empty list if
// the text is not such a list.
Cores parse_cores(const std::string& list);

// The cores of each NUMA node, from the kernel's files below `folder`.
std::vector<Cores> numa_nodes(
    const std::filesystem::path& folder = "/sys/devices/system/node");

// Returns the allowed cores of the nodes that contain the share of worker
// `index` of `count`. Empty means: do not bind, because these are all cores, or
// fewer than `threads`. REQUIRES: 0 <= index < count.
Cores cores_of_worker(const std::vector<Cores>& nodes, const Cores& allowed,
                      int index, int count, int threads);

// The cores near the device at `bus_address` ("0000:3b:00.0") on the PCI bus,
// read from the kernel's files below `folder`; empty if unknown.
Cores cores_near_device(
    const std::string& bus_address,
    const std::filesystem::path& folder = "/sys/bus/pci/devices");

// Returns the allowed cores for a worker whose card is near `near`.
// nullopt: the near cores are unknown, or none is allowed; bind as on the CPU.
// Empty: do not bind, because all cores are near, or there are fewer than
// `threads`.
std::optional<Cores> cores_of_card_worker(const Cores& near,
                                          const Cores& allowed, int threads);

// Whether Open MPI has bound this process without being asked to.
bool is_bound_by_default(const Environment& environment);

// The cores that the kernel allows this process.
Cores allowed_cores();

// Lets this process and its children use every core that its container or job
// allows. Returns the number of those cores.
int use_all_cores();

}  // namespace headroom::cli
