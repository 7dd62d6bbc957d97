#include "parallel/collectives/backend.h"

#include <utility>

namespace headroom::collectives {

std::unique_ptr<Communicator> make_communicator(
    plan::Backend backend, std::shared_ptr<KeyValueStore> store,
    const std::string& prefix, int rank, int size,
    const NetworkOptions& options) {
  // Checked first, also for size 1: each process of an MPI job must initialise
  // MPI.
  if (backend == plan::Backend::kMpi) return make_mpi_communicator(rank, size);
  if (size == 1) return make_single_communicator();
  return share_memory(
      make_network_communicator(std::move(store), prefix, rank, size, options),
      options.timeout);
}

}  // namespace headroom::collectives
