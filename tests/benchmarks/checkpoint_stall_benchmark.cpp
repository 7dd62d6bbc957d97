// The cost of a checkpoint after every step, step by step: steps with and
// without alternate in one group of two processes of one host, and each pair
// gives a ratio; the median counts, at most 1.05.
//
// A step is timed on both processes together, from its start to its commit, or
// to the copy of the state where there is one. Files are written while the next
// step runs, which must be one of the same kind: so a few steps of a kind come
// in a row, the first of which, without a checkpoint in the background, does
// not count; a checkpoint still being written after the last one is finished
// before the other kind begins.
//
//   benchmark_checkpoint_stall [PAIRS [IMAGE_SIZE [IMAGES [MODEL [BLOCK]]]]]
//
// IMAGES: of the global batch. BLOCK: counted steps in a row. Prints the ratio,
// the bytes written and the checkpoints skipped. Exits with 1 when the bound is
// missed. To be run on a quiet machine.
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

// A step, and the copy of its state where there is a saver.
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
  // The first pair of blocks warms up.
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
      // While the block's first step runs no checkpoint is being written.
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
