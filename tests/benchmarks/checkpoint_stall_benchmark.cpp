// Measures the cost of a checkpoint after every step. In one group of two
// processes on one host, groups of steps with a checkpoint after each step
// alternate with groups of steps without. A step of one group and the step at
// the same place in the other give a ratio of times; the median of these ratios
// must be at most 1.05.
//
// A step is timed on both processes together, from its start to its commit or,
// if it has a checkpoint, to the end of the copy of the state. The checkpoint's
// file is written while the next step runs. The first step of each group is
// therefore not counted, because no file is written while it runs. A checkpoint
// that is still being written at the end of a group is finished before the next
// group begins.
//
//   benchmark_checkpoint_stall [PAIRS [IMAGE_SIZE [IMAGES [MODEL [BLOCK]]]]]
//
// IMAGES: images of the global batch. BLOCK: counted steps per group. Prints
// the ratio, the bytes written and the number of skipped checkpoints. Exits
// with 1 if the ratio is too large. Run it on a quiet machine.
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <string>
#include <vector>

#include "parallel/base/check.h"
#include "parallel/base/text.h"
#include "parallel/base/units.h"
#include "parallel/collectives/mesh.h"
#include "tests/benchmarks/training_benchmark.h"
#include "tests/support/forked_ranks.h"
#include "tests/support/rank_training.h"
#include "worker/checkpoint/checkpoint_saver.h"

namespace headroom {
namespace {

constexpr int kProcesses = 2;
constexpr double kBound = 1.05;

struct Request {
  int pairs = 30;
  int64_t image_size = 640;
  int64_t images = 4;
  std::string model = "yolov5s";
  int block = 3;
};

struct Saving {
  int64_t begun = 0, skipped = 0, written = 0, bytes = 0;
  std::string failure;

  void note(checkpoint::CheckpointSaver& saver) {
    for (const checkpoint::CheckpointOutcome& outcome : saver.take_outcomes()) {
      if (!outcome.failure.empty()) failure = outcome.failure;
      ++written;
      bytes += outcome.bytes;
    }
  }
};

// The time of a step and, if there is a saver, of the copy of the state.
double seconds_of_step(RankTraining& training,
                       checkpoint::CheckpointSaver* saver, Saving& saving,
                       collectives::Communicator& world) {
  return slowest_seconds(world, [&] {
    training.step();
    if (saver == nullptr) return;
    const bool is_begun =
        saver->begin({}) == checkpoint::CheckpointSaver::Answer::kBegun;
    ++(is_begun ? saving.begun : saving.skipped);
    saving.note(*saver);
  });
}

bool run(const Request& request, const std::filesystem::path& folder,
         collectives::Communicator& world) {
  configs::RunConfig config =
      synthetic_config(request.model, request.image_size, request.images,
                       "data=" + std::to_string(kProcesses));
  config.batch_norm_group_size = request.images / kProcesses;
  const plan::Plan plan = plan_of_synthetic_run(config);
  RankTraining training(config, plan, world);
  collectives::Mesh mesh(world, plan.layout);
  checkpoint::CheckpointSaver saver({folder / "checkpoints", "{}", 2, true},
                                    training.state(), mesh);
  Saving saving;
  Pairs pairs;
  // The first pair of groups is a warm-up and is not counted.
  for (int pair = -request.block; pair < request.pairs;) {
    std::vector<double> a, b;
    for (int i = 0; i < request.block; ++i) {
      a.push_back(seconds_of_step(training, &saver, saving, world));
    }
    saver.finish();
    saving.note(saver);
    for (int i = 0; i < request.block; ++i) {
      b.push_back(seconds_of_step(training, nullptr, saving, world));
    }
    for (int i = 0; i < request.block; ++i, ++pair) {
      // No checkpoint is being written while the first step of a group runs.
      if (pair < 0 || (request.block > 1 && i == 0)) continue;
      const auto place = static_cast<size_t>(i);
      pairs.first.push_back(a[place]);
      pairs.second.push_back(b[place]);
    }
  }
  if (world.rank() != 0) return true;
  const bool is_kept =
      report(cat("a checkpoint after every step, ", request.model, ", ",
                 request.image_size, " px, batch ", request.images, ", ",
                 kProcesses, " processes"),
             pairs, kBound);
  std::printf("%lld checkpoints written (%s), %lld skipped\n",
              static_cast<long long>(saving.written),
              format_bytes(saving.bytes).c_str(),
              static_cast<long long>(saving.skipped));
  if (!saving.failure.empty()) {
    std::printf("a checkpoint failed: %s\n", saving.failure.c_str());
  }
  std::fflush(stdout);
  return is_kept && saving.failure.empty();
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  headroom::Request request;
  if (argc > 1) request.pairs = std::stoi(argv[1]);
  if (argc > 2) request.image_size = std::stoll(argv[2]);
  if (argc > 3) request.images = std::stoll(argv[3]);
  if (argc > 4) request.model = argv[4];
  if (argc > 5) request.block = std::stoi(argv[5]);
  const auto folder = std::filesystem::current_path() /
                      ("headroom-stall-" + std::to_string(getpid()));
  return headroom::run_forked_ranks(
      headroom::kProcesses, folder,
      [&](headroom::collectives::Communicator& world) {
        return headroom::run(request, folder, world) ? 0 : 1;
      });
}
