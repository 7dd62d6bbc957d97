// The largest square image, in steps of the largest stride, that one image a
// step can be trained on within a limit: forward, backward and commit, by the
// counting allocator, which throws where the limit is met.
//
//   benchmark_largest_image [--limit-mib N] [--cfg MODEL] [--only NAME]…
//
// plain autograd is LibTorch's operators; the others are Headroom under one
// policy, under what the planner chooses for the limit, and under spatial 2,
// where each of two ranks has the limit. --only: those whose name contains it;
// ratios need plain autograd among them. Exits with 1 when Headroom's largest
// without offload and on one process is below 1.7 times plain autograd's.
#include <ATen/Parallel.h>
#include <c10/util/Exception.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <string>
#include <vector>

#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/base/check.h"
#include "parallel/plan/activation_policies.h"
#include "tests/support/plain_training.h"
#include "tests/support/rank_training.h"
#include "tests/support/run_ranks.h"
#include "worker/model/kernels/heap.h"

namespace headroom {
namespace {

constexpr double kBound = 1.7;
constexpr const char* kPlain = "plain autograd";
constexpr int64_t kStride = 32;
constexpr int64_t kFirstSide = 640;  // whose bytes give the first guess
constexpr int kSteps = 2;            // the second one has autograd's leftovers

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

struct Attempt {
  bool fits = false;
  int64_t between_bytes = 0;  // between steps
  int64_t peak_bytes = 0;
  std::string plan;
};

struct Contender {
  std::string name;
  // Trains on images of `side` under `limit`; the fullest rank's bytes.
  std::function<Attempt(int64_t side, int64_t limit)> attempt;
};

RunConfig config_of(const Request& request, int64_t side) {
  RunConfig config;
  config.cfg = request.model;
  config.synthetic_input = true;
  config.image_height = config.image_width = side;
  config.global_batch_size = 1;
  config.layout = "data=1";
  return config;
}

Attempt attempt_plain(const Request& request, int64_t side, int64_t limit) {
  CountingAllocator& memory = CountingAllocator::instance();
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
  memory.set_limit(CountingAllocator::kNoLimit);
  return attempt;
}

// Ranks are threads, each with the limit for itself. What needs another
// attempt, with leaner rows, does not fit.
Attempt attempt_ranks(const RunConfig& config, int64_t limit) {
  Attempt attempt;
  std::vector<Attempt> ranks;
  try {
    const Plan plan = plan_of_synthetic_run(config);
    attempt.plan = activations_text(plan.activation_policies);
    ranks.resize(static_cast<size_t>(plan.layout.world_size()));
    RankOptions options;
    options.operation_timeout = std::chrono::minutes(5);
    options.time_limit = std::chrono::minutes(10);
    run_ranks(
        plan.layout.world_size(),
        [&](int rank, Communicator& world) {
          CountingAllocator& memory = CountingAllocator::instance();
          Attempt& mine = ranks[static_cast<size_t>(rank)];
          RankTraining training(config, plan, world);
          mine.between_bytes = memory.live_bytes();
          memory.set_limit(limit);
          mine.fits = true;
          for (int step = 0; step < kSteps; ++step) {
            const StepResult result = training.step();
            mine.fits = mine.fits && result.attempt == 1;
            mine.peak_bytes =
                std::max(mine.peak_bytes,
                         result.measured_peak_bytes[static_cast<size_t>(rank)]);
          }
        },
        options);
  } catch (const Error&) {  // the leanest step does not fit, or no plan does
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
  std::vector<Contender> all;
  all.push_back({kPlain, [=](int64_t side, int64_t limit) {
                   return attempt_plain(request, side, limit);
                 }});
  for (const std::string policy : {"keep", "lean", "recompute"}) {
    all.push_back({policy, [=](int64_t side, int64_t limit) {
                     RunConfig config = config_of(request, side);
                     config.activations = policy;
                     return attempt_ranks(config, limit);
                   }});
  }
  all.push_back({"planned for the limit", [=](int64_t side, int64_t limit) {
                   RunConfig config = config_of(request, side);
                   config.memory_limit =
                       limit == CountingAllocator::kNoLimit ? 0 : limit;
                   return attempt_ranks(config, limit);
                 }});
  for (const std::string policy : {"keep", "recompute"}) {
    all.push_back({"spatial 2, " + policy, [=](int64_t side, int64_t limit) {
                     RunConfig config = config_of(request, side);
                     config.layout = "spatial=2";
                     config.activations = policy;
                     return attempt_ranks(config, limit);
                   }});
  }
  return all;
}

struct Largest {
  int64_t side = 0;
  Attempt attempt;
};

// From a guess, since bytes grow with the area, by doubled steps and then
// halves to the side that fits beside the next one that does not.
Largest find_largest(const Contender& contender, int64_t limit) {
  const Attempt first =
      contender.attempt(kFirstSide, CountingAllocator::kNoLimit);
  HEADROOM_CHECK(first.fits, contender.name + " without a limit");
  const double per_pixel =
      static_cast<double>(first.peak_bytes - first.between_bytes) /
      static_cast<double>(kFirstSide * kFirstSide);
  const double guess =
      std::sqrt(static_cast<double>(limit - first.between_bytes) / per_pixel);
  Largest largest;
  int64_t too_large = 0;  // 0: not known yet
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

int run(const Request& request) {
  std::printf("%s, one image a step, %ld MiB of tensors\n",
              request.model.c_str(), static_cast<long>(request.limit >> 20));
  int64_t plain = 0, best = 0;
  for (const Contender& contender : contenders(request)) {
    if (!request.wants(contender.name)) continue;
    const Largest largest = find_largest(contender, request.limit);
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
  headroom::keep_freed_memory();
  headroom::CountingAllocator::install();
  headroom::install_saved_tensor_policies();
  at::set_num_threads(1);
  headroom::Request request;
  CLI::App app("the largest image that fits");
  app.add_option_function<int64_t>(
      "--limit-mib",
      [&request](int64_t mebibytes) { request.limit = mebibytes << 20; });
  app.add_option("--cfg", request.model);
  app.add_option("--only", request.only)->take_all();
  CLI11_PARSE(app, argc, argv);
  try {
    return headroom::run(request);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "%s\n", error.what());
    return 1;
  }
}
