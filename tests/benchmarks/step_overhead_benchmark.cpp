// Measures the cost of splitting. In one group of two processes on one host,
// two trainings take turns step by step; each pair of steps gives a ratio of
// times, and the median of these ratios is the result.
//
//   data       data 2 with gradients reduced while backward runs, compared with
//              the same share of the batch without communication: at most 1.06
//   recompute  recomputed activations compared with kept ones: at most 1.4
//
// For both trainings, the processes start a step together and the time of the
// slower one counts. The training with communication cannot run ahead on one
// process, and a process that the machine slows down must slow down both times.
// The order changes from pair to pair.
//
//   benchmark_step_overhead [PAIRS [IMAGE_SIZE [IMAGES_PER_PROCESS [MODEL]]]]
//
// Exits with 1 if a bound is exceeded. Run it on a quiet machine.
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "parallel/base/check.h"
#include "tests/benchmarks/training_benchmark.h"
#include "tests/support/forked_ranks.h"
#include "tests/support/rank_training.h"

namespace headroom {
namespace {

constexpr int kProcesses = 2;
constexpr int kWarmUpPairs = 5;

struct Request {
  int pairs = 100;
  int64_t image_size = 160;
  int64_t images = 16;  // per process
  std::string model = "yolov5n";
};

configs::RunConfig config_of(const Request& request, int processes) {
  configs::RunConfig config = synthetic_config(
      request.model, request.image_size, request.images * processes,
      "data=" + std::to_string(processes));
  // Batch-norm groups stay within a rank, so that both trainings compute the
  // same.
  config.batch_norm_group_size = request.images;
  return config;
}

Pairs alternate(RankTraining& first, RankTraining& second,
                collectives::Communicator& world, int pairs) {
  Pairs result;
  const auto of = [&](RankTraining& training) {
    return slowest_seconds(world, [&] { training.step(); });
  };
  for (int pair = -kWarmUpPairs; pair < pairs; ++pair) {
    double a = 0, b = 0;
    if (pair % 2 == 0) a = of(first);
    b = of(second);
    if (pair % 2 != 0) a = of(first);
    if (pair < 0) continue;
    result.first.push_back(a);
    result.second.push_back(b);
  }
  return result;
}

bool run(const Request& request, collectives::Communicator& world) {
  const std::unique_ptr<collectives::Communicator> alone =
      collectives::make_single_communicator();
  const configs::RunConfig shared = config_of(request, kProcesses);
  const configs::RunConfig single = config_of(request, 1);
  configs::RunConfig lean = single;
  lean.activations = "recompute";
  const auto plan = [](const configs::RunConfig& config) {
    return plan_of_synthetic_run(config);
  };
  RankTraining without(single, plan(single), *alone);
  const std::string sizes = request.model + ", " +
                            std::to_string(request.image_size) + " px, " +
                            std::to_string(request.images) + " each";
  bool kept = true;
  {
    RankTraining with(shared, plan(shared), world);
    const Pairs pairs = alternate(with, without, world, request.pairs);
    if (world.rank() == 0) {
      kept &= report("data 2 / no communication, " + sizes, pairs, 1.06);
    }
  }
  RankTraining recomputed(lean, plan(lean), *alone);
  const Pairs pairs = alternate(recomputed, without, world, request.pairs);
  if (world.rank() == 0) {
    kept &= report("recompute / keep, " + sizes, pairs, 1.4);
  }
  return kept;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  headroom::Request request;
  if (argc > 1) request.pairs = std::stoi(argv[1]);
  if (argc > 2) request.image_size = std::stoll(argv[2]);
  if (argc > 3) request.images = std::stoll(argv[3]);
  if (argc > 4) request.model = argv[4];
  const auto folder = std::filesystem::temp_directory_path() /
                      ("headroom-overhead-" + std::to_string(getpid()));
  return headroom::run_forked_ranks(
      headroom::kProcesses, folder,
      [&](headroom::collectives::Communicator& world) {
        return headroom::run(request, world) ? 0 : 1;
      });
}
