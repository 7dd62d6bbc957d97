// The memory model against the counting allocator: predicted peaks of steps,
// per rank, must not be below the measured ones and little above. The table is
// printed.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <string>

#include "configs/model_table.h"
#include "coordinator/plan_memory.h"
#include "parallel/base/units.h"
#include "tests/support/layout_memory.h"

namespace headroom {
namespace {

struct Cell {
  std::string model = "yolov5n";
  int64_t image_size = 320;
  int64_t batch = 1;
  int64_t micro_batch = 1;
  bool recompute = false;
  std::string layout = "data=1";
  int zero_stage = 0;
};

void check(const Cell& cell) {
  RunConfig config;
  config.cfg = cell.model;
  config.image_height = config.image_width = cell.image_size;
  config.global_batch_size = cell.batch;
  config.micro_batch_size = cell.micro_batch;
  config.batch_norm_group_size = cell.micro_batch;
  config.activations = cell.recompute ? "recompute" : "keep";
  config.layout = cell.layout;
  config.zero_stage = cell.zero_stage;
  const LayoutMemory measured = measure_memory(config, /*steps=*/2);

  config.synthetic_input = true;
  const MemoryRequest request = memory_request(
      config, measured.plan, row_costs(load_model_table(config.cfg)));
  const auto stages = estimate_memory(request);
  const auto predicted = predicted_peak_bytes(measured.plan.layout, stages);
  for (size_t rank = 0; rank < predicted.size(); ++rank) {
    const int64_t peak = measured.ranks[rank].peak;
    const double ratio =
        static_cast<double>(predicted[rank]) / static_cast<double>(peak);
    std::printf(
        "| %s | %3d | %2d x %d | %-9s | %-10s | %d | %zu | %9s | %9s | "
        "%.3f |\n",
        cell.model.c_str(), static_cast<int>(cell.image_size),
        static_cast<int>(cell.batch / cell.micro_batch),
        static_cast<int>(cell.micro_batch),
        cell.recompute ? "recompute" : "keep", cell.layout.c_str(),
        cell.zero_stage, rank, format_bytes(predicted[rank]).c_str(),
        format_bytes(peak).c_str(), ratio);
    std::fflush(stdout);
    EXPECT_GE(ratio, 1.0);
    EXPECT_LE(ratio, cell.recompute ? 1.35 : 1.10);
  }
}

class MemoryModel : public testing::TestWithParam<bool> {};

TEST_P(MemoryModel, OneProcess) {
  for (const int64_t micro : {1, 2, 4, 8})
    check({"yolov5n", 320, micro, micro, GetParam()});
  check({"yolov5n", 320, 8, 4, GetParam()});
  check({"yolov5n", 640, 2, 2, GetParam()});
  check({"yolov5s", 320, 1, 1, GetParam()});
  check({"yolov5s", 320, 4, 4, GetParam()});
}
TEST_P(MemoryModel, Layouts) {
  check({"yolov5n", 320, 4, 2, GetParam(), "data=2"});
  check({"yolov5n", 320, 8, 2, GetParam(), "pipeline=2"});
  check({"yolov5n", 320, 2, 2, GetParam(), "spatial=2"});
  for (const int zero : {1, 2, 3})
    check({"yolov5s", 320, 4, 2, GetParam(), "data=2", zero});
}
TEST_P(MemoryModel, LargeImages) {
  for (const int64_t micro : {1, 4, 8})
    check({"yolov5n", 640, micro, micro, GetParam()});
  for (const int64_t micro : {1, 2, 4})
    check({"yolov5s", 640, micro, micro, GetParam()});
  check({"yolov5s", 640, 4, 1, GetParam(), "pipeline=2"});
  check({"yolov5s", 640, 1, 1, GetParam(), "spatial=2"});
  check({"yolov5s", 640, 2, 1, GetParam(), "data=2", 3});
}
INSTANTIATE_TEST_SUITE_P(Policies, MemoryModel, testing::Bool(),
                         [](const auto& policy) {
                           return policy.param ? "Recompute" : "Keep";
                         });

}  // namespace
}  // namespace headroom
