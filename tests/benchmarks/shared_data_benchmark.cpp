// Measures the memory and the loaders of several processes of one machine that
// read the same data set, with a shared index and shared images, or with
// --apart each with its own.
//
//   build/bin/benchmark_shared_data --data DATA.yaml [--ranks 8] [--img 640]
//       [--samples 400] [--host-memory-mib 1024] [--cold] [--apart]
//
// Memory is the sum of the processes' proportional shares (Pss), without what
// they have before they read the data set. Each process has one thread. The
// rates are those of all processes by the clock, and by the processor's time,
// which other programs disturb less. They begin after an epoch that fills the
// cache, or with --cold at the first sample; --samples 0 measures the index
// alone.
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "configs/data_config.h"
#include "parallel/base/check.h"
#include "parallel/machine/shared_file.h"
#include "worker/data/labels/index_cache.h"
#include "worker/data/labels/shared_index.h"
#include "worker/data/loader/loader.h"
#include "worker/kernels/cpu/heap.h"

namespace headroom {
namespace {

using Clock = std::chrono::steady_clock;
constexpr int kMostRanks = 64;

struct Options {
  std::string data;
  int ranks = 8;
  int64_t image_size = 640;
  int64_t samples = 400;  // of each process
  int64_t host_memory_mib = 1024;
  bool cold = false;
  bool apart = false;
};

struct Result {
  double index_seconds = 0, samples_per_second = 0;
  double samples = 0, core_seconds = 0;
  int64_t first_kib = 0, index_kib = 0, end_kib = 0;
};

// In memory that all processes share.
struct Board {
  std::atomic<int> arrived = 0;
  Result results[kMostRanks];
};

int64_t own_kib() {
  std::ifstream file("/proc/self/smaps_rollup");
  for (std::string word; file >> word;) {
    if (word != "Pss:") continue;
    int64_t kib = 0;
    file >> kib;
    return kib;
  }
  return 0;
}

void meet(Board& board, int ranks) {
  const int mine = board.arrived++;
  while (board.arrived < (mine / ranks + 1) * ranks) usleep(1000);
}

double core_seconds() {
  rusage used{};
  getrusage(RUSAGE_SELF, &used);
  const auto seconds = [](const timeval& time) {
    return static_cast<double>(time.tv_sec) +
           static_cast<double>(time.tv_usec) / 1e6;
  };
  return seconds(used.ru_utime) + seconds(used.ru_stime);
}

double seconds_since(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

void be_rank(const Options& options, int rank, const SharedFiles& shared,
             Board& board) {
  Result& result = board.results[rank];
  kernels::keep_freed_memory();  // as a worker does
  meet(board, options.ranks);
  result.first_kib = own_kib();
  meet(board, options.ranks);
  std::string problem;
  auto begin = Clock::now();
  const std::vector<labels::IndexedDataset> sets = labels::SharedIndex::read(
      shared.index, "train",
      [&] {
        labels::IndexOptions indexing;
        indexing.kept_in = labels::index_folder();
        std::vector<labels::IndexedDataset> read;
        read.push_back(
            labels::index_dataset(configs::load_data_config(options.data),
                                  labels::Split::kTrain, indexing));
        return read;
      },
      problem);
  result.index_seconds = seconds_since(begin);
  meet(board, options.ranks);
  result.index_kib = own_kib();
  meet(board, options.ranks);
  if (options.samples == 0) return;
  loader::LoaderOptions loading;
  loading.dataset = &sets[0].dataset;
  loading.image_height = loading.image_width = options.image_size;
  loading.global_batch_size = 8 * options.ranks;
  loading.data_parallel_size = options.ranks;
  loading.data_parallel_rank = rank;
  loading.micro_batch_size = 8;
  loading.batch_norm_rule = {8};
  loading.host_memory_limit_bytes = options.host_memory_mib << 20;
  if (shared.images >= 0) {
    const int64_t room =
        options.host_memory_mib * options.ranks * (int64_t{1} << 20) / 10 * 9;
    loading.shared_images = loader::SharedImages::open(
        shared.images, loader::shared_content(loading), room, problem);
    HEADROOM_CHECK(loading.shared_images != nullptr, problem);
  }
  loader::Loader loader(loading);
  const int64_t before = options.cold ? 0 : loader.batches_per_epoch();
  for (int64_t i = 0; i < before; ++i) loader.next();
  meet(board, options.ranks);
  begin = Clock::now();
  const double before_cores = core_seconds();
  int64_t made = 0;
  while (made < options.samples) made += loader.next().images.size(0);
  result.samples_per_second = static_cast<double>(made) / seconds_since(begin);
  result.samples = static_cast<double>(made);
  result.core_seconds = core_seconds() - before_cores;
  meet(board, options.ranks);
  result.end_kib = own_kib();
  meet(board, options.ranks);
}

int run(const Options& options) {
  auto& board = *new (mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE,
                           MAP_SHARED | MAP_ANONYMOUS, -1, 0)) Board;
  std::unique_ptr<SharedFile> index, images;
  SharedFiles shared;
  if (!options.apart) {
    index = SharedFile::make("index");
    images = SharedFile::make("images");
    shared = {index->descriptor(), images->descriptor(), options.ranks};
  }
  for (int rank = 0; rank < options.ranks; ++rank) {
    if (fork() != 0) continue;
    be_rank(options, rank, shared, board);
    std::_Exit(0);
  }
  int status = 0;
  while (wait(&status) > 0) {
    HEADROOM_CHECK(status == 0, "a process has failed");
  }
  Result all;
  for (const Result& one : board.results) {
    all.index_seconds = std::max(all.index_seconds, one.index_seconds);
    all.samples_per_second += one.samples_per_second;
    all.samples += one.samples;
    all.core_seconds += one.core_seconds;
    all.first_kib += one.first_kib;
    all.index_kib += one.index_kib;
    all.end_kib += one.end_kib;
  }
  std::printf(
      "{\"index_seconds\": %.2f, \"index_mib\": %.1f, \"end_mib\": %.1f, "
      "\"samples_per_second\": %.2f, \"samples_per_core_second\": %.2f}\n",
      all.index_seconds,
      static_cast<double>(all.index_kib - all.first_kib) / 1024,
      static_cast<double>(std::max<int64_t>(0, all.end_kib - all.first_kib)) /
          1024,
      all.samples_per_second, all.samples / std::max(1e-9, all.core_seconds));
  return 0;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  headroom::Options options;
  CLI::App app("memory and loaders of processes that read one data set");
  app.add_option("--data", options.data)->required();
  app.add_option("--ranks", options.ranks)
      ->check(CLI::Range(1, headroom::kMostRanks));
  app.add_option("--img", options.image_size);
  app.add_option("--samples", options.samples);
  app.add_option("--host-memory-mib", options.host_memory_mib);
  app.add_flag("--cold", options.cold);
  app.add_flag("--apart", options.apart);
  CLI11_PARSE(app, argc, argv);
  return headroom::run(options);
}
