// Runs one rank as a process, for the tests of this folder:
//
//   rank_process network RANK SIZE FOLDER MODE   rendezvous through FOLDER
//   rank_process lazy_network …                  the same
//   rank_process shared_memory …                 the same
//   rank_process machines …                      the same; ranks 1 and 2 share
//                                                a machine, as 3 and 4 do, …
//   rank_process mpi MODE                        under mpirun
//
// MODE check runs every collective check. In die and hang, the last rank
// misbehaves in the middle of a collective; in fail it throws there. In crowd,
// the rank expects one rank more than mpirun started. In besieged, the rank may
// open few file descriptors. It connects without waiting for the other ranks,
// and then waits for the key "go". Exits with 0; on an error, prints one line
// and exits with 7 for CommunicationError and with 1 for anything else.
#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <signal.h>
#include <sys/resource.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "parallel/base/check.h"
#include "parallel/collectives/backend.h"
#include "tests/parallel/collectives/collective_checks.h"
#include "tests/support/folder_store.h"

namespace headroom::collectives {
namespace {

using std::chrono::milliseconds;

// Waits until all processes have started, so that the time limits of the tests
// do not include the start.
void wait_for_all(KeyValueStore& store, int rank, int size) {
  store.set("started " + std::to_string(rank), "");
  for (int i = 0; i < size; ++i) {
    store.get("started " + std::to_string(i), std::chrono::seconds(60));
  }
}

void work(Communicator& ranks, const std::string& mode,
          int64_t elements = 1000000) {
  if (mode == "check") {
    for (const CollectiveCheck& check : collective_checks()) check.run(ranks);
    return;
  }
  const at::Tensor tensor = at::ones({elements});
  const auto under_way = ranks.all_reduce_async(tensor, ReduceOp::kSum);
  under_way->wait();
  if (ranks.rank() == ranks.size() - 1) {
    if (mode == "die") raise(SIGKILL);
    if (mode == "fail") throw std::runtime_error("the last rank fails");
    if (mode == "hang") std::this_thread::sleep_for(std::chrono::minutes(1));
  }
  for (int i = 0; i < 100; ++i) ranks.all_reduce(tensor);
}

int variable(const char* name) {
  const char* const value = std::getenv(name);
  if (value == nullptr) throw std::runtime_error(std::string(name) + " unset");
  return std::atoi(value);
}

void run(const std::vector<std::string>& arguments) {
  at::set_num_threads(1);
  if (arguments.at(0) == "mpi") {
    const std::string mode = arguments.at(1);
    const int size = variable("OMPI_COMM_WORLD_SIZE");
    // The rank numbers are those of other backends, which differ from MPI's.
    const int rank = size - 1 - variable("OMPI_COMM_WORLD_RANK");
    const auto ranks = make_communicator(plan::Backend::kMpi, nullptr, "", rank,
                                         size + (mode == "crowd" ? 1 : 0));
    if (ranks->rank() != rank) throw std::runtime_error("another rank");
    work(*ranks, mode);
    return;
  }
  const int rank = std::stoi(arguments.at(1));
  const int size = std::stoi(arguments.at(2));
  const auto store = std::make_shared<FolderStore>(arguments.at(3));
  const bool is_besieged = arguments.at(4) == "besieged";
  if (is_besieged) {
    const rlimit few = {256, 256};
    setrlimit(RLIMIT_NOFILE, &few);
  } else {
    wait_for_all(*store, rank, size);
  }
  NetworkOptions options;
  options.timeout = milliseconds(arguments.at(4) == "hang" ? 2000 : 20000);
  if (arguments.at(0) == "lazy_network") options.full_mesh_up_to = 1;
  const bool has_machines = arguments.at(0) == "machines";
  auto ranks = make_network_communicator(store, "test", rank, size, options);
  if (has_machines || arguments.at(0) == "shared_memory") {
    ranks = share_memory(
        std::move(ranks), options.timeout,
        has_machines ? std::optional<int64_t>((rank + 1) / 2) : std::nullopt);
  }
  if (is_besieged) {
    store->set("connected " + std::to_string(rank), "");
    store->get("go", std::chrono::seconds(60));
  }
  // Only small sums go by machine.
  if (has_machines) return work(*ranks, arguments.at(4), 500);
  work(*ranks, arguments.at(4));
}

}  // namespace
}  // namespace headroom::collectives

int main(int argc, char** argv) {
  try {
    headroom::collectives::run(std::vector<std::string>(argv + 1, argv + argc));
    return 0;
  } catch (const headroom::CommunicationError& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 7;
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
