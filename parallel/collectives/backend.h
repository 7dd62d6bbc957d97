// The backends of Communicator, and the one place that picks one.
//
// Each is Collective over all of its ranks, and throws CommunicationError.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "parallel/base/key_value_store.h"
#include "parallel/collectives/communicator.h"
#include "parallel/collectives/device_ranks.h"
#include "parallel/plan/plan.h"

namespace headroom::collectives {

struct NetworkOptions {
  // The name or address of this machine that the peers connect to, or the
  // absolute path of a folder for Unix sockets, where all ranks are on one
  // machine.
  std::string hostname = "127.0.0.1";
  // The time limit of each operation, connecting included. A shorter one gives
  // up a slow network earlier, a longer one waits longer for a peer that hangs.
  std::chrono::milliseconds timeout = std::chrono::seconds(20);
  // In a group of more ranks two ranks connect when they first exchange a
  // message, so that most have a few connections instead of thousands. In a
  // group of fewer all connect when it is made.
  int full_mesh_up_to = 64;
};

// The communicator of all ranks of a generation. kAuto is kGloo, the sockets of
// make_network_communicator, also under mpirun: MPI's fail-stop must be asked
// for. Ranks of one host then sum through shared memory. kNccl is the same
// here: NCCL takes the tensors of devices only (make_device_host_communicator).
// MPI uses neither store nor prefix.
std::unique_ptr<Communicator> make_communicator(
    plan::Backend backend, std::shared_ptr<KeyValueStore> store,
    const std::string& prefix, int rank, int size,
    const NetworkOptions& options = {});

// Ranks are processes that exchange tensors over sockets (network_group.h).
// Keys are written below `prefix`, which no earlier group of the same store may
// have used. Only processes that know the generation's secret can connect
// (tensor_port.h); what is sent over TCP can be read on the network.
//
// A failed group cannot be repaired. At the first failure this rank closes all
// of its connections, which makes its peers fail at once too.
//
// Throws Error when `hostname` cannot be bound. REQUIRES: 0 <= rank < size.
std::unique_ptr<Communicator> make_network_communicator(
    std::shared_ptr<KeyValueStore> store, const std::string& prefix, int rank,
    int size, const NetworkOptions& options = {});

// Ranks of one host sum, gather and scatter through memory that they share;
// what goes between two ranks alone takes `network`. Returns `network` itself
// where its ranks cannot share memory: they are on several hosts, in several
// containers, or of several users. Parts of a split() decide for themselves.
//
// Sums are formed in rank order, each element by one rank, in parts of
// SharedGroup::kPartBytes; nothing else is allocated. The ranks themselves
// carry out an asynchronous sum in the first wait() or collective that follows:
// while backward uses all cores, a thread of its own would take their time.
//
// `timeout` bounds each meeting of all ranks; it should be that of `network`.
std::unique_ptr<Communicator> share_memory(
    std::unique_ptr<Communicator> network, std::chrono::milliseconds timeout);

// Ranks are the processes that mpirun started, one per slot; `rank` need not be
// MPI's own. Loads libheadroom_mpi.so (mpi_plugin.h) and initialises MPI on
// first use. Throws Error where that cannot be loaded, and when `size` is not
// the number of processes that mpirun started.
//
// Fail-stop: Open MPI ends the whole job when one process dies, so nothing
// recovers here. MPI is finalised when the process exits, but only if no
// communicator failed or was dropped by an exception: a process that leaves
// without it makes mpirun end its peers, which would otherwise wait for ever.
std::unique_ptr<Communicator> make_mpi_communicator(int rank, int size);

// Ranks exchange tensors of the host and of devices. Tensors of the host go to
// `host`. A device's go over `devices` (NCCL), messages excepted: the orders of
// the pipeline and of the halo would deadlock there. Everything else passes
// through the host: it is copied there, exchanged, and copied back when it is
// waited for. `devices` may be null.
std::unique_ptr<Communicator> make_device_host_communicator(
    std::unique_ptr<Communicator> host, std::shared_ptr<DeviceRanks> devices);

// `size` ranks as threads of one process, for unit tests, in rank order.
//
// Whichever rank arrives last forms the sums, in rank order, so they repeat bit
// for bit. send() returns when its message was received: a schedule that relies
// on buffering deadlocks here, as it would elsewhere under load. Destroying a
// communicator is how a rank dies: peers that wait for it fail at once. The
// group is unusable after `timeout` in one operation.
std::vector<std::unique_ptr<Communicator>> make_local_communicators(
    int size, std::chrono::milliseconds timeout = std::chrono::seconds(30));

}  // namespace headroom::collectives
