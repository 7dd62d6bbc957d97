// Measures how many mosaic samples per second loader threads make from a data
// set.
//
//   build/bin/benchmark_loader --data DATA.yaml [--img 640] [--samples 400]
//                              [--threads 1] [--cold]
//                              [--augment-program COMMAND]
//
// The measurement begins after an epoch that fills the memory for decoded
// images (--host-memory-mib; with 1 almost no image is kept), or with --cold at
// the first sample. tests/benchmarks/loader_ratio.py compares the result with
// OpenCV called from Python; packs.py compares loose files with packs.
#include <CLI/CLI.hpp>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <string>

#include "configs/data_config.h"
#include "worker/data/labels/dataset.h"
#include "worker/data/loader/loader.h"
#include "worker/kernels/cpu/heap.h"

namespace headroom {
namespace {

struct Options {
  std::string data;
  int64_t image_size = 640;
  int64_t samples = 400;
  int64_t host_memory_mib = 1024;
  int64_t threads = 1;
  bool cold = false;
  std::string augment_program;
};

int run(const Options& options) {
  const configs::DataConfig config = configs::load_data_config(options.data);
  const labels::IndexedDataset indexed =
      labels::index_dataset(config, labels::Split::kTrain);
  loader::LoaderOptions loading;
  loading.dataset = &indexed.dataset;
  loading.image_height = loading.image_width = options.image_size;
  loading.global_batch_size = loading.micro_batch_size = 8;
  loading.batch_norm_rule = {8};
  loading.host_memory_limit_bytes = options.host_memory_mib << 20;
  loading.num_threads = options.threads;
  loading.program = {.command = options.augment_program,
                     .num_classes = std::ssize(indexed.dataset.class_names()),
                     .most_boxes = 10'000};
  loader::Loader loader(loading);
  const int64_t before = options.cold ? 0 : loader.batches_per_epoch();
  for (int64_t i = 0; i < before; ++i) loader.next();
  const auto begin = std::chrono::steady_clock::now();
  int64_t made = 0;
  while (made < options.samples) made += loader.next().images.size(0);
  const std::chrono::duration<double> seconds =
      std::chrono::steady_clock::now() - begin;
  std::printf("{\"samples_per_second\": %.3f}\n",
              static_cast<double>(made) / seconds.count());
  return 0;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  headroom::Options options;
  CLI::App app("mosaic samples a second of loader threads");
  app.add_option("--data", options.data)->required();
  app.add_option("--img", options.image_size);
  app.add_option("--samples", options.samples);
  app.add_option("--host-memory-mib", options.host_memory_mib);
  app.add_option("--threads", options.threads);
  app.add_flag("--cold", options.cold);
  app.add_option("--augment-program", options.augment_program);
  CLI11_PARSE(app, argc, argv);
  headroom::kernels::keep_freed_memory();  // as a worker does
  return headroom::run(options);
}
