// Measures the end of a validation, where rank 0 gathers what all ranks have
// found: each rank's memory and the seconds. Detections are made up; matching
// and average precision are those of a run.
//
//   build/bin/benchmark_validation_records [--images 100000] [--ranks 8]
//                                          [--detections 300] [--classes 80]
//
// A rank's memory is its resident set. "Held" is what its own detections take;
// "peak" is the most that gathering took beyond the program before it had any.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <fstream>
#include <random>
#include <string>
#include <vector>

#include "tests/benchmarks/measures.h"
#include "tests/support/forked_ranks.h"
#include "tests/support/temporary_folder.h"
#include "worker/validation/validate.h"
#include "worker/validation/validation_figures.h"

namespace headroom {
namespace {

struct Options {
  int64_t images = 100'000, detections = 300, classes = 80, batch = 32;
  int ranks = 8;
};

// VmRSS or VmHWM of this process, in MiB.
double status_mib(const std::string& key) {
  std::ifstream status("/proc/self/status");
  std::string word;
  double kib = 0;
  while (status >> word) {
    if (word == key + ":" && status >> kib) return kib / 1024;
  }
  return 0;
}

void reset_peak() { std::ofstream("/proc/self/clear_refs") << "5"; }

// Rare classes have fewer objects, as in real data.
int32_t draw_class(std::mt19937& random, int64_t classes) {
  const double place = std::generate_canonical<double, 32>(random);
  return static_cast<int32_t>(place * place * static_cast<double>(classes));
}

metrics::Corners draw_box(std::mt19937& random) {
  const auto pixel = [&] { return static_cast<float>(random() % 600); };
  const float x = pixel(), y = pixel();
  return {x, y, x + 8 + pixel() / 8, y + 8 + pixel() / 8};
}

validation::ImageFindings findings_of(const Options& options, int64_t image) {
  std::mt19937 random(static_cast<unsigned>(image));
  validation::ImageFindings found;
  found.sample = image;
  for (int i = 0; i < 7; ++i) {
    found.labels.push_back(
        {draw_box(random), draw_class(random, options.classes)});
  }
  for (int64_t i = 0; i < options.detections; ++i) {
    metrics::Detection one{draw_box(random), 0,
                           draw_class(random, options.classes)};
    if (i % 20 == 0) {
      const metrics::LabelledBox& label =
          found.labels[static_cast<size_t>(i / 20) % found.labels.size()];
      one.box = label.box;
      one.box.x2 += static_cast<float>(random() % 30);
      one.class_index = label.class_index;
    }
    // Few values, so that many detections are of equal confidence.
    one.confidence = static_cast<float>(1 + random() % 999) / 1000;
    found.detections.push_back(one);
  }
  std::ranges::stable_sort(found.detections, std::ranges::greater{},
                           &metrics::Detection::confidence);
  return found;
}

int measure(const Options& options, collectives::Communicator& world) {
  validation::ValidationOptions validation;
  for (int64_t c = 0; c < options.classes; ++c) {
    validation.class_names.push_back(std::to_string(c));
  }
  const double before = status_mib("VmRSS");
  validation::RankFindings mine(validation.class_names.size());
  const int64_t step = options.batch * world.size();
  for (int64_t first = world.rank() * options.batch; first < options.images;
       first += step) {
    validation::BatchFindings batch;
    const int64_t end = std::min(options.images, first + options.batch);
    for (int64_t image = first; image < end; ++image) {
      validation::add_image(findings_of(options, image), validation, batch);
    }
    mine.add(std::move(batch));
  }
  const double held = status_mib("VmRSS") - before;
  world.barrier();
  reset_peak();
  validation::ValidationResult result;
  const double seconds = seconds_of([&] {
    result = validation::summarise(world, std::move(mine), validation);
  });
  const double peak = status_mib("VmHWM") - before;
  for (int rank = 0; rank < world.size(); ++rank) {
    world.barrier();
    if (rank != world.rank() || rank > 1) continue;
    std::printf(
        "rank %d of %d, %lld images: held %.0f MiB, peak %.0f MiB, %.2f s; "
        "mAP50 %.17g, mAP %.17g, COCO %.17g %.17g, P %.17g, R %.17g\n",
        rank, world.size(), static_cast<long long>(result.images), held, peak,
        seconds, result.map50, result.map, result.coco_map50, result.coco_map,
        result.precision, result.recall);
    std::fflush(stdout);
  }
  return 0;
}

}  // namespace
}  // namespace headroom

int main(int argc, char** argv) {
  headroom::Options options;
  CLI::App app("Measures how rank 0 gathers the findings of a validation");
  app.add_option("--images", options.images, "Images of all ranks");
  app.add_option("--ranks", options.ranks, "Ranks, each a process");
  app.add_option("--detections", options.detections, "Detections of an image");
  app.add_option("--classes", options.classes, "Classes");
  CLI11_PARSE(app, argc, argv);
  const headroom::testing::TemporaryFolder folder;
  return headroom::run_forked_ranks(
      options.ranks, folder.path() / "ranks",
      [&](headroom::collectives::Communicator& world) {
        return headroom::measure(options, world);
      });
}
