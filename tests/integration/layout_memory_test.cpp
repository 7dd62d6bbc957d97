// Measures what layouts save: the bytes per rank in float32, compared with one
// process.
//
//   spatial   the activations of a rank: the peak of a step minus the bytes
//             between steps
//   pipeline  the whole peak, compared with one process that accumulates over
//             the same micro-batches
//   ZeRO      the bytes between steps, and the peak of a step whose images are
//             so small that the state needs nearly all of the memory
//
// The table is printed. Large images are in LargeImages (label slow).
#include <gtest/gtest.h>

#include <cstdio>

#include "parallel/base/units.h"
#include "parallel/plan/layout.h"
#include "tests/support/layout_memory.h"

namespace headroom {
namespace {

// Memory that the first step leaves appears in the second.
constexpr int kSteps = 2;

struct Request {
  std::string model = "yolov5s";
  int64_t image_size = 640;
  int64_t batch = 1;
  int64_t micro_batch = 1;
};

configs::RunConfig config_of(const Request& request,
                             const std::string& layout) {
  configs::RunConfig config;
  config.cfg = request.model;
  config.image_height = config.image_width = request.image_size;
  config.global_batch_size = request.batch;
  config.micro_batch_size = request.micro_batch;
  config.batch_norm_group_size = request.micro_batch;
  config.layout = plan::parse_layout(layout);
  return config;
}

double part(int64_t bytes, int64_t of) {
  return static_cast<double>(bytes) / static_cast<double>(of);
}

void print_row(const std::string& name, const LayoutMemory& one,
               const LayoutMemory& split) {
  for (size_t rank = 0; rank < split.ranks.size(); ++rank) {
    const RankMemory& mine = split.ranks[rank];
    const RankMemory& all = one.ranks.front();
    std::printf("| %-40s | %zu | %9s %.3f | %9s %.3f | %9s %.3f |\n",
                name.c_str(), rank, format_bytes(mine.state).c_str(),
                part(mine.state, all.state),
                format_bytes(mine.activations()).c_str(),
                part(mine.activations(), all.activations()),
                format_bytes(mine.peak).c_str(), part(mine.peak, all.peak));
  }
  std::fflush(stdout);
}

std::string name_of(const Request& request, const std::string& layout) {
  return request.model + ", " + std::to_string(request.image_size) + " px, " +
         std::to_string(request.batch / request.micro_batch) + " x " +
         std::to_string(request.micro_batch) + ", " + layout;
}

void expect_near(const LayoutMemory& one, const LayoutMemory& split) {
  ASSERT_EQ(one.loss.size(), split.loss.size());
  for (size_t step = 0; step < one.loss.size(); ++step) {
    EXPECT_NEAR(split.loss[step] / one.loss[step], 1, 1e-4) << step;
  }
}

void check_spatial(const Request& request, int ranks, double activations) {
  const std::string layout = "spatial=" + std::to_string(ranks);
  const LayoutMemory one = measure_memory(config_of(request, "data=1"), kSteps);
  const LayoutMemory split = measure_memory(config_of(request, layout), kSteps);
  print_row(name_of(request, layout), one, split);
  expect_near(one, split);
  EXPECT_LE(part(split.activations(), one.activations()), activations);
}

void check_pipeline(const Request& request, double peak) {
  const LayoutMemory one = measure_memory(config_of(request, "data=1"), kSteps);
  const LayoutMemory split =
      measure_memory(config_of(request, "pipeline=2"), kSteps);
  print_row(name_of(request, "pipeline=2"), one, split);
  expect_near(one, split);
  EXPECT_LE(part(split.peak(), one.peak()), peak);
}

void check_zero(const std::string& model, double resident, double peak) {
  const Request request{model, 64, 4, 4};
  configs::RunConfig config = config_of(request, "data=1");
  const LayoutMemory one = measure_memory(config, kSteps);
  config.layout = plan::parse_layout("data=4");
  config.zero_stage = 3;
  const LayoutMemory split = measure_memory(config, kSteps);
  print_row(name_of(request, "data=4, ZeRO 3"), one, split);
  expect_near(one, split);
  EXPECT_LE(part(split.state(), one.state()), resident);
  EXPECT_LE(part(split.peak(), one.state()), peak);
}

TEST(LayoutMemory, Spatial2) { check_spatial({"yolov5n", 320, 2, 2}, 2, 0.58); }
TEST(LayoutMemory, Pipeline2) { check_pipeline({"yolov5n", 320, 8, 2}, 0.78); }
TEST(LayoutMemory, Zero3Over4) { check_zero("yolov5n", 0.26, 0.45); }

TEST(LargeImages, Spatial2At640) {
  check_spatial({"yolov5s", 640, 1, 1}, 2, 0.56);
}
TEST(LargeImages, Spatial2At1280) {
  check_spatial({"yolov5s", 1280, 1, 1}, 2, 0.56);
}
TEST(LargeImages, Pipeline2At640) {
  check_pipeline({"yolov5s", 640, 16, 4}, 0.75);
}
TEST(LargeImages, Pipeline2At640OneByOne) {
  check_pipeline({"yolov5s", 640, 4, 1}, 0.75);
}
TEST(LargeImages, Pipeline2At1280) {
  check_pipeline({"yolov5s", 1280, 4, 1}, 0.75);
}
TEST(LargeImages, Zero3Over4) { check_zero("yolov5s", 0.26, 0.38); }

}  // namespace
}  // namespace headroom
