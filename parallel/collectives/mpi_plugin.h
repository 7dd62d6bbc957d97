// The interface of libheadroom_mpi.so, which alone is linked with Open MPI: it
// is loaded for --backend mpi, so that a machine without MPI, or with an MPI
// that asks for a newer C library than its own, has everything else.
//
// Errors: those of Communicator pass through it.
#pragma once

#include <memory>

#include "parallel/collectives/communicator.h"

namespace headroom::collectives {

inline constexpr int kMpiApiVersion = 1;

class MpiApi {
 public:
  virtual ~MpiApi() = default;
  // What make_mpi_communicator (backend.h) returns.
  virtual std::unique_ptr<Communicator> connect(int rank, int size) = 0;
};

// The one function that the plugin exports; null where it is of another
// version.
using MpiApiFactory = MpiApi* (*)(int version);
inline constexpr const char* kMpiApiFactory = "headroom_mpi_api";

}  // namespace headroom::collectives
