// The backends of Communicator, and make_communicator, which selects one. Each
// make function is collective over all of its ranks and throws
// CommunicationError.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "parallel/base/key_value_store.h"
#include "parallel/collectives/communicator.h"
#include "parallel/collectives/device_ranks.h"
#include "parallel/plan/plan.h"

namespace headroom::collectives {

struct NetworkOptions {
  // The name or address of this machine to which peers connect. If all ranks
  // are on one machine, it may be the absolute path of a folder for Unix
  // sockets.
  std::string hostname = "127.0.0.1";
  // The time limit of each operation, including connecting. A shorter limit
  // fails sooner on a slow network; a longer one waits longer for a peer that
  // hangs.
  std::chrono::milliseconds timeout = std::chrono::seconds(20);
  // In a group of up to this many ranks, every two ranks connect at once. In a
  // larger group, two ranks connect when they first exchange a message, so that
  // most ranks have a few connections, not thousands.
  int full_mesh_up_to = 64;
};

// Makes the communicator of all ranks of a generation. kAuto means kGloo
// (make_network_communicator), even under mpirun: MPI cannot recover from a
// failure, so it must be requested. Ranks of one machine share memory
// (share_memory). kNccl means kGloo here, because NCCL takes only device
// tensors (make_device_host_communicator). MPI ignores `store` and `prefix`.
std::unique_ptr<Communicator> make_communicator(
    plan::Backend backend, std::shared_ptr<KeyValueStore> store,
    const std::string& prefix, int rank, int size,
    const NetworkOptions& options = {});

// Ranks are processes that exchange tensors over sockets (network_group.h).
// Keys are written below `prefix`, which must be new in the store. Only
// processes with the generation's secret can connect (tensor_port.h), but data
// over TCP is not encrypted.
//
// A failed group cannot be repaired. At the first failure this rank closes all
// of its connections, which makes its peers fail at once too.
//
// Throws Error if `hostname` cannot be bound. REQUIRES: 0 <= rank < size.
std::unique_ptr<Communicator> make_network_communicator(
    std::shared_ptr<KeyValueStore> store, const std::string& prefix, int rank,
    int size, const NetworkOptions& options = {});

// If all ranks are on one machine, they sum, gather and scatter through shared
// memory; messages between two ranks use `network`. If they are on several
// machines, small sums go through the memory of each machine and then between
// the machines (network_collectives.h), and everything else uses `network`. The
// same if ranks of one machine cannot share memory, because they are in several
// containers or of several users: each container counts as a machine. Each part
// of a split() decides separately.
//
// On one machine sums are computed in rank order, each element by one rank, in
// parts of SharedGroup::kPartBytes; no other memory is allocated. An
// asynchronous sum is computed by the ranks' own threads in the next wait() or
// collective: backward uses all cores, and another thread would slow it down.
//
// `timeout` limits each meeting of all ranks; use the timeout of `network`.
// Ranks that pass the same `machine` count as ranks of one machine; a test
// passes numbers of its own.
std::unique_ptr<Communicator> share_memory(
    std::unique_ptr<Communicator> network, std::chrono::milliseconds timeout,
    std::optional<int64_t> machine = {});

// Ranks are the processes that mpirun started, one per slot; `rank` may differ
// from MPI's rank. Loads libheadroom_mpi.so (mpi_plugin.h) and initialises MPI
// on first use. Throws Error if the library cannot be loaded or `size` is not
// the number of processes that mpirun started.
//
// No recovery: Open MPI ends the whole job when one process dies. MPI is
// finalised at process exit, but only if no communicator failed or was dropped
// by an exception. Otherwise mpirun ends the peers, which would wait for ever.
std::unique_ptr<Communicator> make_mpi_communicator(int rank, int size);

// Exchanges host tensors through `host`, and device tensors through `devices`
// (NCCL). If `devices` is null, device tensors are copied to the host,
// exchanged, and copied back in wait(). The same for messages between two ranks
// before connect_messages().
std::unique_ptr<Communicator> make_device_host_communicator(
    std::unique_ptr<Communicator> host, std::shared_ptr<DeviceRanks> devices);

// Makes the communicators of `size` ranks that are threads of one process, in
// rank order; for unit tests.
//
// The last rank to arrive computes the sums in rank order, so they repeat bit
// for bit. send() returns only when its message was received, so a schedule
// that relies on buffering deadlocks here, as it would with other backends
// under load. Destroying a communicator simulates the death of its rank:
// waiting peers fail at once. After `timeout` in one operation the group is
// unusable.
std::vector<std::unique_ptr<Communicator>> make_local_communicators(
    int size, std::chrono::milliseconds timeout = std::chrono::seconds(30));

}  // namespace headroom::collectives
