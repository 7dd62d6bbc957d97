#include "parallel/collectives/mpi_plugin.h"

#include <string>

#include "parallel/base/check.h"
#include "parallel/base/plugin_library.h"
#include "parallel/collectives/backend.h"

namespace headroom::collectives {
namespace {

MpiApi& load_mpi_plugin() {
  const std::string path =
      plugin_path("HEADROOM_MPI_PLUGIN", "libheadroom_mpi.so");
  if (!plugin_exists(path)) {
    throw Error(
        "mpi", "this program was built without MPI: there is no " + path,
        "install libopenmpi-dev and build again, or use --backend gloo");
  }
  // RTLD_GLOBAL: Open MPI's own plugins look up its symbols in the global
  // scope. Our library adds only one symbol.
  const auto plugin =
      open_plugin<MpiApiFactory>(path, kMpiApiFactory, RTLD_GLOBAL);
  if (plugin.factory == nullptr) {
    throw Error("mpi", plugin.error,
                "install Open MPI 4, whose library is libmpi.so.40, or use "
                "--backend gloo");
  }
  MpiApi* const api = plugin.factory(kMpiApiVersion);
  if (api == nullptr) {
    throw Error("mpi", path + " is of another version than this program",
                "build both again, or use --backend gloo");
  }
  return *api;
}

}  // namespace

std::unique_ptr<Communicator> make_mpi_communicator(int rank, int size) {
  static MpiApi& api = load_mpi_plugin();
  return api.connect(rank, size);
}

}  // namespace headroom::collectives
