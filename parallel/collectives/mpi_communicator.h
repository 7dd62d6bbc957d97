// MpiCommunicator: ranks are the processes that mpirun started, one per slot.
//
// Fail-stop: Open MPI ends the whole job when one process dies, so nothing
// recovers here. MPI is finalised when the process exits, but only if no
// communicator failed or was dropped by an exception: a process that leaves
// without it makes mpirun end its peers, which would otherwise wait for ever.
//
// Without MPI at build time no_mpi.cpp takes this file's place: the factory
// throws an Error with the remedy.
#pragma once

#include <memory>

#include "parallel/collectives/communicator.h"

namespace headroom::collectives {

// Initialises MPI on first use. Collective over all processes of the job;
// `rank` need not be MPI's own. Throws Error when `size` is not the number of
// processes that mpirun started.
std::unique_ptr<Communicator> make_mpi_communicator(int rank, int size);

}  // namespace headroom::collectives
