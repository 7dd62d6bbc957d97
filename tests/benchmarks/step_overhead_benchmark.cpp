// The cost of splitting, step by step: two trainings alternate in one group of
// two processes of one host, and each pair gives a ratio; the median counts.
//
//   data       data 2, gradients reduced while backward runs, over the same
//              share without any communication: at most 1.06
//   recompute  activations recomputed over kept: at most 1.4
//
// Both processes start a step together and the slower one's time counts, on
// both sides: with communication neither can be ahead, and a process slowed
// down by the machine must not count for one side only. The order changes from
// pair to pair.
//
//   benchmark_step_overhead [PAIRS [IMAGE_SIZE [IMAGES_PER_PROCESS [MODEL]]]]
//
// Exits with 1 when a bound is missed. To be run on a quiet machine.
#include <ATen/ops/full.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/plan/layout.h"
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
  configs::RunConfig config;
  config.cfg = request.model;
  config.synthetic_input = true;
  config.image_height = config.image_width = request.image_size;
  config.global_batch_size = request.images * processes;
  // Groups stay on a rank, so that both sides compute the same.
  config.batch_norm_group_size = request.images;
  config.layout = plan::parse_layout("data=" + std::to_string(processes));
  return config;
}

// The seconds of the slower process, the same number on both.
double seconds_of_step(RankTraining& training,
                       collectives::Communicator& world) {
  using Clock = std::chrono::steady_clock;
  world.barrier();
  const Clock::time_point start = Clock::now();
  training.step();
  const at::Tensor seconds =
      at::full({1}, std::chrono::duration<double>(Clock::now() - start).count(),
               at::kDouble);
  world.all_reduce(seconds, collectives::ReduceOp::kMax);
  return *seconds.const_data_ptr<double>();
}

struct Pairs {
  std::vector<double> first, second;  // seconds
};

Pairs alternate(RankTraining& first, RankTraining& second,
                collectives::Communicator& world, int pairs) {
  Pairs result;
  for (int pair = -kWarmUpPairs; pair < pairs; ++pair) {
    double a = 0, b = 0;
    if (pair % 2 == 0) a = seconds_of_step(first, world);
    b = seconds_of_step(second, world);
    if (pair % 2 != 0) a = seconds_of_step(first, world);
    if (pair < 0) continue;
    result.first.push_back(a);
    result.second.push_back(b);
  }
  return result;
}

// `place` of 0.5: the median.
double quantile(std::vector<double> values, double place) {
  std::sort(values.begin(), values.end());
  const double last = static_cast<double>(values.size() - 1);
  return values[static_cast<size_t>(place * last + 0.5)];
}

bool report(const std::string& name, const Pairs& pairs, double bound) {
  std::vector<double> ratios;
  for (size_t i = 0; i < pairs.first.size(); ++i) {
    ratios.push_back(pairs.first[i] / pairs.second[i]);
  }
  const double median = quantile(ratios, 0.5);
  std::printf(
      "%-48s median ratio %.3f (quartiles %.3f to %.3f), bound %.2f: %s; %zu "
      "pairs of %.1f and %.1f ms\n",
      name.c_str(), median, quantile(ratios, 0.25), quantile(ratios, 0.75),
      bound, median <= bound ? "kept" : "MISSED", ratios.size(),
      1e3 * quantile(pairs.first, 0.5), 1e3 * quantile(pairs.second, 0.5));
  std::fflush(stdout);
  return median <= bound;
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
