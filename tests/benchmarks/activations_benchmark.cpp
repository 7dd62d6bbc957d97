// What activation policies cost in time and save in memory: four trainings of
// one process, keep, lean, recompute and offload, take turns step by step; each
// round gives a ratio to keep's step, and the median counts. Who goes first
// changes from round to round.
//
//   benchmark_activations [ROUNDS [IMAGE_SIZE [IMAGES [MODEL]]]]
//
// Time is the processor's, of one thread: what other programs take does not
// count, though their use of the caches does. The wall's ratio stands beside
// it. Bounds: lean at most 1.15 of keep's time, recompute 1.40. Exits with 1
// when one is missed. To be run on a quiet machine.
#include <ATen/Parallel.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <memory>
#include <string>
#include <vector>

#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/base/check.h"
#include "tests/support/rank_training.h"
#include "worker/model/kernels/heap.h"

namespace headroom {
namespace {

constexpr int kWarmUpRounds = 2;

struct Request {
  int rounds = 15;
  int64_t image_size = 640;
  int64_t images = 1;
  std::string model = "yolov5s";
};

struct Contender {
  std::string policy;
  double bound;  // of its time over keep's; 0: none
  std::unique_ptr<RankTraining> training = nullptr;
  std::vector<double> seconds = {};  // of the processor
  std::vector<double> wall_seconds = {};
  int64_t step_bytes = 0;  // the peak above what is there between steps
};

RunConfig config_of(const Request& request, const std::string& policy) {
  RunConfig config;
  config.cfg = request.model;
  config.synthetic_input = true;
  config.image_height = config.image_width = request.image_size;
  config.global_batch_size = request.images;
  config.layout = "data=1";
  config.activations = policy;
  return config;
}

void run_step(Contender& contender, bool counts) {
  using Clock = std::chrono::steady_clock;
  CountingAllocator& memory = CountingAllocator::instance();
  const int64_t between = memory.live_bytes();
  const Clock::time_point start = Clock::now();
  const std::clock_t start_ticks = std::clock();
  const StepResult result = contender.training->step();
  const std::clock_t ticks = std::clock() - start_ticks;
  const std::chrono::duration<double> wall_seconds = Clock::now() - start;
  if (!counts) return;
  contender.seconds.push_back(static_cast<double>(ticks) / CLOCKS_PER_SEC);
  contender.wall_seconds.push_back(wall_seconds.count());
  contender.step_bytes = std::max(contender.step_bytes,
                                  result.measured_peak_bytes.front() - between);
}

double median(std::vector<double> values) {
  std::nth_element(values.begin(),
                   values.begin() + static_cast<long>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

double ratio_to(const std::vector<double>& seconds,
                const std::vector<double>& keep) {
  std::vector<double> ratios;
  for (size_t i = 0; i < keep.size(); ++i)
    ratios.push_back(seconds[i] / keep[i]);
  return median(ratios);
}

bool report(const Contender& contender, const Contender& keep) {
  const double ratio = ratio_to(contender.seconds, keep.seconds);
  const bool kept = contender.bound == 0 || ratio <= contender.bound;
  std::printf("| %-9s | %8.1f MiB %5.3f | %8.1f ms %5.3f | wall %5.3f |%s\n",
              contender.policy.c_str(),
              static_cast<double>(contender.step_bytes) / (1 << 20),
              static_cast<double>(contender.step_bytes) /
                  static_cast<double>(keep.step_bytes),
              1e3 * median(contender.seconds), ratio,
              ratio_to(contender.wall_seconds, keep.wall_seconds),
              kept ? "" : " MISSED");
  return kept;
}

int run(const Request& request) {
  const std::unique_ptr<Communicator> alone = make_single_communicator();
  std::array<Contender, 4> contenders = {
      {{"keep", 0}, {"lean", 1.15}, {"recompute", 1.40}, {"offload", 0}}};
  for (Contender& contender : contenders) {
    const RunConfig config = config_of(request, contender.policy);
    contender.training = std::make_unique<RankTraining>(
        config, plan_of_synthetic_run(config), *alone);
  }
  for (int round = -kWarmUpRounds; round < request.rounds; ++round) {
    for (size_t turn = 0; turn < contenders.size(); ++turn) {
      const size_t first = static_cast<size_t>(round + kWarmUpRounds);
      run_step(contenders[(first + turn) % contenders.size()], round >= 0);
    }
  }
  std::printf(
      "%s, %ld px, %ld images, %d rounds: the step's bytes and time, medians\n",
      request.model.c_str(), static_cast<long>(request.image_size),
      static_cast<long>(request.images), request.rounds);
  bool kept = true;
  for (const Contender& contender : contenders) {
    kept &= report(contender, contenders.front());
  }
  return kept ? 0 : 1;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  headroom::keep_freed_memory();
  headroom::CountingAllocator::install();
  headroom::install_saved_tensor_policies();
  at::set_num_threads(1);
  headroom::Request request;
  try {
    if (argc > 1) request.rounds = std::stoi(argv[1]);
    if (argc > 2) request.image_size = std::stoll(argv[2]);
    if (argc > 3) request.images = std::stoll(argv[3]);
    if (argc > 4) request.model = argv[4];
    return headroom::run(request);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
