// Finds the largest square image on which a step of one image can be trained
// within a memory limit. A step is forward, backward and commit; the side grows
// by the largest stride. The counting allocator throws when the limit is
// reached.
//
//   benchmark_largest_image [--limit-mib N] [--cfg MODEL] [--only NAME]…
//                           [--probe SIDE]
//
// "plain autograd" uses LibTorch's operators. The other contenders are Headroom
// under a single policy, under the planner's choice for the limit, and under
// spatial 2, where each of two ranks has the limit. --only runs the contenders
// whose name contains NAME; ratios need plain autograd among them. Exits with 1
// if Headroom's largest side on one process without offload is less than 1.7
// times that of plain autograd.
//
// A step of "spatial 2, recompute" takes minutes, and the heaps of its threads
// keep memory of earlier images. So the search starts at the largest side that
// the memory model accepts and goes up from there, and each side runs in a
// process of its own, whose address space is limited to what its ranks may
// need. --probe is the command of such a process: it runs one side of the
// contender that --only names, and prints the bytes.
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "configs/layers/layer_cost.h"
#include "configs/layers/model_table.h"
#include "parallel/activations/counting_allocator.h"
#include "parallel/base/check.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/plan_memory.h"
#include "tests/benchmarks/training_benchmark.h"
#include "tests/support/plain_training.h"
#include "tests/support/rank_training.h"
#include "tests/support/run_ranks.h"

namespace headroom {
namespace {

constexpr double kBound = 1.7;
constexpr const char* kPlain = "plain autograd";
constexpr int64_t kStride = 32;
constexpr int64_t kFirstSide = 640;  // its bytes give the first guess
// The second step includes the bytes that autograd keeps from the first.
constexpr int kSteps = 2;

struct Request {
  int64_t limit = int64_t{2} << 30;
  std::string model = "yolov5n";
  std::vector<std::string> only;

  bool wants(const std::string& name) const {
    return only.empty() ||
           std::ranges::any_of(only, [&name](const std::string& part) {
             return name.find(part) != std::string::npos;
           });
  }
};

constexpr const char* kInProcesses = "spatial 2, recompute";

struct Attempt {
  bool fits = false;
  int64_t between_bytes = 0;  // the bytes held between steps
  int64_t peak_bytes = 0;
  std::string plan;
};

struct Contender {
  std::string name;
  // Trains on images of `side` under `limit`; returns the fullest rank's bytes.
  std::function<Attempt(int64_t side, int64_t limit)> attempt;
};

configs::RunConfig config_of(const Request& request, int64_t side,
                             const std::string& layout = "data=1") {
  return synthetic_config(request.model, side, /*images=*/1, layout);
}

Attempt attempt_plain(const Request& request, int64_t side, int64_t limit) {
  activations::CountingAllocator& memory =
      activations::CountingAllocator::instance();
  Attempt attempt;
  try {
    PlainTraining training(config_of(request, side));
    attempt.between_bytes = memory.live_bytes();
    memory.set_limit(limit);
    memory.reset_peak();
    for (int step = 0; step < kSteps; ++step) training.step();
    attempt.fits = true;
    attempt.peak_bytes = memory.peak_bytes();
  } catch (const c10::OutOfMemoryError&) {
  }
  memory.set_limit(activations::CountingAllocator::kNoLimit);
  return attempt;
}

// Ranks are threads, each with its own limit. If a step must be retried with
// layers that keep less, it does not fit.
Attempt attempt_ranks(const configs::RunConfig& config, int64_t limit) {
  Attempt attempt;
  std::vector<Attempt> ranks;
  try {
    const plan::Plan plan = plan_of_synthetic_run(config);
    attempt.plan = plan::activations_text(plan.activation_policies);
    ranks.resize(static_cast<size_t>(plan.layout.world_size()));
    RankOptions options;
    options.operation_timeout = std::chrono::minutes(5);
    options.time_limit = std::chrono::minutes(10);
    run_ranks(
        plan.layout.world_size(),
        [&](int rank, collectives::Communicator& world) {
          activations::CountingAllocator& memory =
              activations::CountingAllocator::instance();
          Attempt& mine = ranks[static_cast<size_t>(rank)];
          RankTraining training(config, plan, world);
          mine.between_bytes = memory.live_bytes();
          memory.set_limit(limit);
          mine.fits = true;
          for (int step = 0; step < kSteps; ++step) {
            const step::StepResult result = training.step();
            mine.fits = mine.fits && result.attempt == 1;
            mine.peak_bytes =
                std::max(mine.peak_bytes,
                         result.measured_peak_bytes[static_cast<size_t>(rank)]);
          }
        },
        options);
  } catch (const Error&) {  // not even the smallest plan fits
    return attempt;
  } catch (const c10::OutOfMemoryError&) {
    return attempt;
  }
  attempt.fits = true;
  for (const Attempt& rank : ranks) {
    attempt.fits = attempt.fits && rank.fits;
    attempt.between_bytes = std::max(attempt.between_bytes, rank.between_bytes);
    attempt.peak_bytes = std::max(attempt.peak_bytes, rank.peak_bytes);
  }
  return attempt;
}

std::vector<Contender> contenders(const Request& request) {
  struct Way {
    const char* name;
    const char* layout;
    const char* policy;
  };
  constexpr Way kWays[] = {{"keep", "data=1", "keep"},
                           {"lean", "data=1", "lean"},
                           {"recompute", "data=1", "recompute"},
                           {"planned for the limit", "data=1", "auto"},
                           {"spatial 2, keep", "spatial=2", "keep"},
                           {kInProcesses, "spatial=2", "recompute"}};
  std::vector<Contender> all = {{kPlain, [=](int64_t side, int64_t limit) {
                                   return attempt_plain(request, side, limit);
                                 }}};
  for (const Way& way : kWays) {
    all.push_back({way.name, [=](int64_t side, int64_t limit) {
                     configs::RunConfig config =
                         config_of(request, side, way.layout);
                     config.activations = way.policy;
                     const bool is_limited =
                         limit != activations::CountingAllocator::kNoLimit;
                     if (config.activations == "auto" && is_limited) {
                       config.memory_limit = limit;
                     }
                     return attempt_ranks(config, limit);
                   }});
  }
  return all;
}

struct Largest {
  int64_t side = 0;
  Attempt attempt;
};

// Starts at a guess, for which the bytes are assumed to grow with the area.
// Then the increment doubles while images fit, and is halved until the next
// larger side does not fit.
Largest find_largest(const Contender& contender, int64_t limit) {
  const Attempt first =
      contender.attempt(kFirstSide, activations::CountingAllocator::kNoLimit);
  HEADROOM_CHECK(first.fits, contender.name + " without a limit");
  const double per_pixel =
      static_cast<double>(first.peak_bytes - first.between_bytes) /
      static_cast<double>(kFirstSide * kFirstSide);
  const double guess =
      std::sqrt(static_cast<double>(limit - first.between_bytes) / per_pixel);
  Largest largest;
  int64_t too_large = 0;  // 0: no such side was found yet
  int64_t side = static_cast<int64_t>(guess) / kStride * kStride;
  int64_t step = kStride;
  for (;;) {
    side = std::max(side, kStride);
    const Attempt attempt = contender.attempt(side, limit);
    if (attempt.fits) {
      largest = {side, attempt};
    } else {
      too_large = side;
    }
    if (too_large - largest.side == kStride) return largest;
    if (largest.side == 0) {
      side -= step;
    } else if (too_large == 0) {
      side += step;
    } else {
      side = (largest.side + too_large) / 2 / kStride * kStride;
    }
    step *= 2;
  }
}

// The largest side for which the fullest rank is predicted to fit.
int64_t predicted_side(const configs::RunConfig& base, int64_t limit) {
  const auto layers = layers::layer_costs(layers::load_model_table(base.cfg));
  const auto fits = [&](int64_t blocks) {
    configs::RunConfig config = base;
    config.image_height = config.image_width = blocks * kStride;
    const plan::Plan plan = plan_of_synthetic_run(config);
    return planner::fullest_rank_bytes(plan) <= limit;
  };
  int64_t most = 1, too_many = 1;
  while (fits(too_many)) too_many *= 2;
  while (most + 1 < too_many) {
    const int64_t middle = (most + too_many) / 2;
    (fits(middle) ? most : too_many) = middle;
  }
  return most * kStride;
}

// Measures, in a process of its own, the bytes of the fullest rank on images of
// `side`. The address space of that process is limited to the sum of the limits
// of its ranks, the same amount for memory that is not tensors, and the
// libraries.
int64_t probed_bytes(const Request& request, int64_t side) {
  constexpr int64_t kLibraries = int64_t{4} << 30;
  const int64_t most = 4 * request.limit + kLibraries;
  const std::string command =
      "ulimit -v " + std::to_string(most >> 10) + "; exec " +
      std::filesystem::read_symlink("/proc/self/exe").string() + " --cfg " +
      request.model + " --limit-mib " + std::to_string(request.limit >> 20) +
      " --only '" + kInProcesses + "' --probe " + std::to_string(side);
  FILE* output = popen(command.c_str(), "r");
  HEADROOM_CHECK(output != nullptr, command);
  long bytes = 0;
  const bool is_read = std::fscanf(output, "%ld", &bytes) == 1;
  HEADROOM_CHECK(pclose(output) == 0 && is_read,
                 "the probe of " + std::to_string(side) + " px failed");
  std::printf("  %ld px: %ld bytes\n", static_cast<long>(side), bytes);
  std::fflush(stdout);
  return bytes;
}

// Starts at the predicted side, corrected by the last measurement, and goes up;
// it goes down only if that side was too large.
Largest find_in_processes(const Request& request) {
  configs::RunConfig config = config_of(request, kFirstSide, "spatial=2");
  config.activations = "recompute";
  int64_t side = predicted_side(config, request.limit);
  std::printf("%s: predicted %ld px\n", kInProcesses, static_cast<long>(side));
  Largest largest;
  largest.attempt.plan = "recompute";
  int64_t too_large = 0;  // 0: no such side was found yet
  while (too_large - largest.side != kStride) {
    const int64_t bytes = probed_bytes(request, side);
    if (bytes <= request.limit) {
      largest.side = side;
      largest.attempt.peak_bytes = bytes;
      const double guess = static_cast<double>(side) *
                           std::sqrt(static_cast<double>(request.limit) /
                                     static_cast<double>(bytes));
      side = std::max(side + kStride,
                      static_cast<int64_t>(guess) / kStride * kStride);
      if (too_large > 0) side = std::min(side, too_large - kStride);
    } else {
      too_large = side;
      side -= kStride;
    }
  }
  return largest;
}

// Prints the bytes of one side, measured in this process. Its limit is 1.5
// times the real one, so that a step that needs more than the real limit is
// measured and not retried.
int probe(const Request& request, int64_t side) {
  for (const Contender& contender : contenders(request)) {
    if (!request.wants(contender.name)) continue;
    const Attempt attempt =
        contender.attempt(side, request.limit + request.limit / 2);
    if (attempt.fits) {
      std::printf("%ld\n", static_cast<long>(attempt.peak_bytes));
    }
    return attempt.fits ? 0 : 1;
  }
  HEADROOM_CHECK(false, "--probe without a contender");
}

int run(const Request& request) {
  std::printf("%s, one image a step, %ld MiB of tensors\n",
              request.model.c_str(), static_cast<long>(request.limit >> 20));
  int64_t plain = 0, best = 0;
  for (const Contender& contender : contenders(request)) {
    if (!request.wants(contender.name)) continue;
    const Largest largest = contender.name == kInProcesses
                                ? find_in_processes(request)
                                : find_largest(contender, request.limit);
    if (contender.name == kPlain) plain = largest.side;
    const double ratio = plain == 0 ? 0
                                    : static_cast<double>(largest.side) /
                                          static_cast<double>(plain);
    if (contender.name.find("spatial") == std::string::npos) {
      best = std::max(best, largest.side);
    }
    std::printf("| %-22s | %5ld px | %4.2f | %6.1f MiB | %s |\n",
                contender.name.c_str(), static_cast<long>(largest.side), ratio,
                static_cast<double>(largest.attempt.peak_bytes) / (1 << 20),
                largest.attempt.plan.c_str());
    std::fflush(stdout);
  }
  return static_cast<double>(best) >= kBound * static_cast<double>(plain) ? 0
                                                                          : 1;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  headroom::become_worker();
  at::set_num_threads(1);
  headroom::Request request;
  CLI::App app("the largest image that fits");
  app.add_option_function<int64_t>(
      "--limit-mib",
      [&request](int64_t mebibytes) { request.limit = mebibytes << 20; });
  app.add_option("--cfg", request.model);
  app.add_option("--only", request.only)->take_all();
  int64_t probed = 0;
  app.add_option("--probe", probed);
  return headroom::run_benchmark(app, argc, argv, [&] {
    return probed > 0 ? headroom::probe(request, probed)
                      : headroom::run(request);
  });
}
