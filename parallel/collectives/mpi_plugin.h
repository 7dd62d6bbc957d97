// The interface of libheadroom_mpi.so, the only library linked with Open MPI.
// It is loaded for --backend mpi, so that everything else works on a machine
// without MPI, or with an MPI that needs a newer C library.
//
// Errors: as Communicator.
#pragma once

#include <memory>

#include "parallel/collectives/communicator.h"

namespace headroom::collectives {

inline constexpr int kMpiApiVersion = 1;

class MpiApi {
 public:
  virtual ~MpiApi() = default;
  // Makes the communicator of make_mpi_communicator (backend.h).
  virtual std::unique_ptr<Communicator> connect(int rank, int size) = 0;
};

// The function that the plugin exports; returns null for another version.
using MpiApiFactory = MpiApi* (*)(int version);
inline constexpr const char* kMpiApiFactory = "headroom_mpi_api";

}  // namespace headroom::collectives
