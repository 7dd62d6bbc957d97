// Stands in for mpi_communicator.cpp where the build found no MPI.
#include "parallel/base/check.h"
#include "parallel/collectives/backend.h"

namespace headroom::collectives {

std::unique_ptr<Communicator> make_mpi_communicator(int, int) {
  throw Error("mpi", "this program was built without MPI",
              "install libopenmpi-dev and build again, or use --backend gloo");
}

}  // namespace headroom::collectives
