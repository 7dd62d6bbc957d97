// Measures how long two processes need to sum a gradient in three ways: with
// Open MPI, through shared memory with copies, and with gradients that are
// stored in shared memory.
//
//   mpirun -np 2 --bind-to none build/bin/benchmark_all_reduce [ROUNDS]
//
// The three ways take turns after each sum; the program prints medians and
// their ratios.
#include <ATen/core/Tensor.h>
#include <ATen/ops/ones.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <string>
#include <vector>

#include "parallel/collectives/backend.h"
#include "tests/benchmarks/measures.h"
#include "tests/support/folder_store.h"

namespace headroom {
namespace {

int number(const char* variable) {
  const char* const text = std::getenv(variable);
  return text == nullptr ? -1 : std::atoi(text);
}

struct Way {
  const char* name;
  collectives::Communicator* ranks;
  at::Tensor tensor;
  std::vector<double> seconds = {};
};

int run(int rounds) {
  const int rank = number("OMPI_COMM_WORLD_RANK");
  const int size = number("OMPI_COMM_WORLD_SIZE");
  if (size != 2) {
    std::fprintf(stderr,
                 "start it with: mpirun -np 2 --bind-to none "
                 "benchmark_all_reduce\n");
    return 2;
  }
  const std::unique_ptr<collectives::Communicator> mpi =
      collectives::make_communicator(plan::Backend::kMpi, nullptr, "", rank,
                                     size);
  const std::filesystem::path folder =
      std::filesystem::temp_directory_path() /
      ("all_reduce." + std::to_string(getppid()));
  std::filesystem::create_directories(folder);
  const std::unique_ptr<collectives::Communicator> shared =
      collectives::make_communicator(plan::Backend::kGloo,
                                     std::make_shared<FolderStore>(folder),
                                     "ranks", rank, size);
  for (const int64_t bytes : {int64_t{7'500'000}, int64_t{28'900'000}}) {
    const int64_t count = bytes / 4;
    std::array<Way, 3> ways{
        Way{"Open MPI", mpi.get(), at::ones({count})},
        Way{"shared memory, staged", shared.get(), at::ones({count})},
        Way{"shared memory, in place", shared.get(),
            shared->zeros(count, at::kFloat)}};
    for (int round = -3; round < rounds; ++round) {
      for (Way& way : ways) {
        mpi->barrier();
        const double seconds =
            seconds_of([&] { way.ranks->all_reduce(way.tensor); });
        if (round >= 0) way.seconds.push_back(seconds);
      }
    }
    if (rank != 0) continue;
    const double of_mpi = median(ways[0].seconds);
    std::printf("%.1f MB\n", static_cast<double>(bytes) / 1e6);
    for (const Way& way : ways) {
      const double seconds = median(way.seconds);
      std::printf("  %-24s %7.3f ms   %5.2f times as fast as Open MPI\n",
                  way.name, seconds * 1e3, of_mpi / seconds);
    }
  }
  shared->barrier();
  if (rank == 0) std::filesystem::remove_all(folder);
  return 0;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  return headroom::run(argc > 1 ? std::max(1, std::atoi(argv[1])) : 200);
}
