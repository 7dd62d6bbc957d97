#include "configs/layers/layer_cost.h"

#include <gtest/gtest.h>

#include "configs/layers/model_table.h"

namespace headroom::layers {
namespace {

struct Times {
  double keep = 0, lean = 0, recompute = 0, offload = 0;
};

// The times of layers [begin, end) of yolov5s, summed.
Times times_of(size_t begin, size_t end) {
  const auto layers = layer_costs(load_model_table("yolov5s"));
  Times sum;
  for (size_t i = begin; i < std::min(end, layers.size()); ++i) {
    const LayerTime time = layer_time(layers[i]);
    EXPECT_LE(time.keep, time.lean) << i;
    EXPECT_LE(time.lean, time.recompute) << i;
    EXPECT_LE(time.keep, time.offload) << i;
    sum.keep += time.keep;
    sum.lean += time.lean;
    sum.recompute += time.recompute;
    sum.offload += time.offload;
  }
  return sum;
}

// Compares the model with the measurements in the header's table.
TEST(LayerTime, IsCloseToTheMeasurements) {
  const Times all = times_of(0, 25);
  EXPECT_NEAR(all.lean / all.keep, 1.010, 0.0006);
  EXPECT_NEAR(all.offload / all.keep, 1.072, 0.0006);
  EXPECT_NEAR(all.recompute / all.keep, 1.243, 0.0006);
  const auto part = [&](size_t begin, size_t end) {
    const Times some = times_of(begin, end);
    return 1 + (some.recompute - some.keep) / all.keep;
  };
  EXPECT_NEAR(part(0, 3), 1.051, 0.0006);
  EXPECT_NEAR(part(3, 5), 1.037, 0.0006);
  EXPECT_NEAR(part(5, 10), 1.070, 0.0006);
  EXPECT_NEAR(part(10, 25), 1.086, 0.0006);
}

}  // namespace
}  // namespace headroom::layers
