// Measures what a rank does on the host for each step that could grow with the
// cluster: the samples of its batch and, on rank 0, the line of steps.jsonl.
//
//   build/bin/benchmark_rank_work [--batch 32768] [--ranks 512]
//                                 [--samples 118287] [--steps 200]
//
// Prints the microseconds and the bytes of a line, beside those of a rank that
// computes and lists the samples of all ranks.
#include <CLI/CLI.hpp>
#include <cstdint>
#include <cstdio>
#include <filesystem>
#include <functional>
#include <vector>

#include "tests/benchmarks/measures.h"
#include "tests/support/temporary_folder.h"
#include "worker/run/run_recorder.h"

namespace headroom {
namespace {

struct Options {
  int64_t batch = 32'768, samples = 118'287, steps = 200;
  int ranks = 512;
};

double median_us(int64_t steps, const std::function<void(int64_t)>& work) {
  std::vector<double> seconds;
  for (int64_t step = 0; step < steps; ++step) {
    seconds.push_back(seconds_of([&] { work(step); }));
  }
  return 1e6 * median(seconds);
}

// The loader computes a batch's samples twice: when it requests their files,
// and when it makes the batch.
double us_of_samples(const Options& options, bool all_ranks) {
  const plan::BatchCut cut{
      options.batch, options.ranks, options.batch / options.ranks, {}};
  return median_us(options.steps, [&](int64_t step) {
    for (int times = 0; times < 2; ++times) {
      const sampling::EpochStep at =
          sampling::epoch_step(step, options.samples, options.batch);
      const plan::SampleRange own =
          plan::part_of(cut, at.positions.size(), 400, options.ranks / 2).local;
      const int64_t begin = at.positions.begin;
      const std::vector<int64_t> drawn = sampling::samples_at(
          sampling::Permutation(0, at.epoch, options.samples),
          all_ranks ? at.positions
                    : plan::SampleRange{begin + own.begin, begin + own.end});
      if (drawn.empty() && own.size() > 0) std::abort();
    }
  });
}

run::StepRecord record_of(const Options& options, int64_t step) {
  const sampling::EpochStep at =
      sampling::epoch_step(step, options.samples, options.batch);
  run::StepRecord record;
  record.step = step;
  record.epoch = at.epoch;
  record.positions = at.positions;
  record.order = sampling::Permutation(0, at.epoch, options.samples);
  record.lists_samples = options.batch <= run::kMostListedSamples;
  record.epoch_samples = options.samples;
  record.images_per_second = 1 / 3e-6;
  record.seconds = 1.0 / 30;
  record.result.loss = record.result.gradient_norm = 100.0 / 3;
  const std::vector<int64_t> bytes(options.ranks, int64_t{60} << 30);
  record.result.measured_peak_bytes = bytes;
  record.result.predicted_peak_bytes = bytes;
  record.result.live_bytes = bytes;
  return record;
}

void measure(const Options& options) {
  std::printf("samples of a batch: %.0f us; of all ranks: %.0f us\n",
              us_of_samples(options, /*all_ranks=*/false),
              us_of_samples(options, /*all_ranks=*/true));
  run::StepRecord first = record_of(options, 0);
  const size_t bytes = run::to_json_line(first).size();
  const double made =
      median_us(options.steps, [&](int64_t) { run::to_json_line(first); });
  first.lists_samples = true;
  std::printf(
      "a line: %zu bytes, made in %.0f us; with a list: %zu bytes, "
      "%.0f us\n",
      bytes, made, run::to_json_line(first).size(),
      median_us(options.steps, [&](int64_t) { run::to_json_line(first); }));
  const testing::TemporaryFolder folder;
  run::StepLog log(folder.path() / "steps.jsonl", 0);
  // What rank 0's training thread does; it waits for the line at the next vote.
  const double handed = median_us(options.steps, [&](int64_t step) {
    log.write(record_of(options, step));
  });
  std::printf("a line is handed to its thread: %.0f us\n", handed);
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  headroom::Options options;
  CLI::App app("host work of a rank for each step");
  app.add_option("--batch", options.batch);
  app.add_option("--ranks", options.ranks);
  app.add_option("--samples", options.samples);
  app.add_option("--steps", options.steps);
  CLI11_PARSE(app, argc, argv);
  headroom::measure(options);
}
