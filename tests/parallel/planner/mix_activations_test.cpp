#include "parallel/planner/activation_mixture.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "configs/layers/layer_cost.h"
#include "configs/layers/model_table.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/plan_memory.h"
#include "parallel/planner/planner.h"

namespace headroom::planner {
namespace {

using enum plan::ActivationPolicy;

struct Request {
  std::string name;
  std::string model = "yolov5s";
  int64_t side = 640;
  int64_t batch = 4;
  std::string layout = "data=1";
  int64_t micro_batch = 0;
};

class MixActivations : public ::testing::TestWithParam<Request> {
 protected:
  configs::RunConfig config_of(const std::string& activations,
                               int64_t limit) const {
    configs::RunConfig config;
    config.cfg = GetParam().model;
    config.image_height = config.image_width = GetParam().side;
    config.global_batch_size = GetParam().batch;
    config.layout = plan::parse_layout(GetParam().layout);
    config.micro_batch_size = GetParam().micro_batch;
    config.batch_norm_group_size = GetParam().micro_batch;
    config.activations = activations;
    config.memory_limit = limit;
    return config;
  }
  plan::Plan plan_of(const std::string& activations, int64_t limit = 0) const {
    const configs::RunConfig config = config_of(activations, limit);
    return plan_or_throw(config, config.layout->world_size(), layers_);
  }
  static int64_t peak(const plan::Plan& plan) {
    return *std::ranges::max_element(plan.predicted_peak_bytes);
  }
  // The modelled time of all layers.
  double time_of(const plan::Plan& plan) const {
    double sum = 0;
    for (size_t layer = 0; layer < layers_.size(); ++layer) {
      const layers::LayerTime time = layers::layer_time(layers_[layer]);
      const plan::ActivationPolicy policy =
          plan.activation_policies.empty() ? kKeep
                                           : plan.activation_policies[layer];
      sum += policy == kKeep   ? time.keep
             : policy == kLean ? time.lean
                               : time.recompute;
    }
    return sum;
  }

  const std::vector<layers::LayerCost> layers_ =
      layers::layer_costs(layers::load_model_table(GetParam().model));
};

TEST_P(MixActivations, FitsAndIsNeverSlowerThanRecomputingEverything) {
  const plan::Plan keep = plan_of("keep"), recompute = plan_of("recompute", 0);
  ASSERT_LT(peak(recompute), peak(keep));
  double before = 0;
  for (const double part : {1.0, 0.9, 0.7, 0.5, 0.3, 0.1, 0.0}) {
    const int64_t limit =
        peak(recompute) +
        static_cast<int64_t>(part *
                             static_cast<double>(peak(keep) - peak(recompute)));
    // The micro-batch is the same as with keep, so only other policies can save
    // memory.
    configs::RunConfig config = config_of("auto", limit);
    config.micro_batch_size = keep.micro_batch_size;
    const int world_size = config.layout->world_size();
    const plan::Plan plan = plan_or_throw(config, world_size, layers_);
    EXPECT_LE(peak(plan), limit) << part;
    EXPECT_LE(time_of(plan), time_of(recompute)) << part;
    EXPECT_GE(time_of(plan), before * (1 - 1e-9)) << "slower with more memory";
    before = time_of(plan);
    EXPECT_EQ(plan, plan_or_throw(config, world_size, layers_));
    if (part == 1.0) {
      EXPECT_EQ(plan::activations_text(plan.activation_policies), "keep");
    }
    if (part == 0.5) {
      EXPECT_LT(time_of(plan), time_of(recompute)) << "half is to spare";
    }
    // The prediction equals the one for the whole model with these policies.
    EXPECT_EQ(
        plan.predicted_peak_bytes,
        predicted_peak_bytes(predict::memory_request(config, plan, layers_)))
        << part;
  }
}

INSTANTIATE_TEST_SUITE_P(
    Layouts, MixActivations,
    ::testing::Values(Request{"Small"}, Request{"Nano", "yolov5n", 320, 8},
                      Request{"SixLevels", "yolov5n6", 640, 2},
                      Request{"Pipeline", "yolov5s", 640, 8, "pipeline=2", 2},
                      Request{"Spatial", "yolov5s", 640, 2, "spatial=2"}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace headroom::planner
