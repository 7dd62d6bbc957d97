#include "parallel/collectives/mpi_plugin.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <string>
#include <system_error>

#include "parallel/base/check.h"
#include "parallel/collectives/backend.h"

namespace headroom::collectives {
namespace {

// The plugin beside the running program, where the build puts it, or the one
// that HEADROOM_MPI_PLUGIN names: tests lie in another folder.
std::string mpi_plugin_path() {
  if (const char* const given = std::getenv("HEADROOM_MPI_PLUGIN")) {
    return given;
  }
  std::error_code ignored;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", ignored);
  return (program.parent_path() / "libheadroom_mpi.so").string();
}

// dlopen's own words name the library that is missing.
[[noreturn]] void refuse_to_load() {
  const char* const text = dlerror();
  throw Error("mpi", text != nullptr ? text : "no reason given",
              "install Open MPI 4, whose library is libmpi.so.40, or use "
              "--backend gloo");
}

MpiApi& load_mpi_plugin() {
  const std::string path = mpi_plugin_path();
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) {
    throw Error(
        "mpi", "this program was built without MPI: there is no " + path,
        "install libopenmpi-dev and build again, or use --backend gloo");
  }
  // Global: Open MPI's own plugins expect its symbols there. Ours exports one.
  void* const library = dlopen(path.c_str(), RTLD_NOW | RTLD_GLOBAL);
  if (library == nullptr) refuse_to_load();
  const auto factory =
      reinterpret_cast<MpiApiFactory>(dlsym(library, kMpiApiFactory));
  if (factory == nullptr) refuse_to_load();
  MpiApi* const api = factory(kMpiApiVersion);
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
