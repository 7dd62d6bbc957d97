// Tests the request that the memory model gets for a run.
#include "parallel/predict/memory_request.h"

#include <gtest/gtest.h>

#include "configs/layers/model_table.h"

namespace headroom::predict {
namespace {

constexpr char kFiveAnchors[] =
    HEADROOM_SOURCE_DIR "/tests/support/models/five_anchors.yaml";

MemoryRequest request_of(const std::string& model,
                         const configs::RunConfig& config) {
  return memory_request(config, {},
                        layers::layer_costs(layers::load_model_table(model)));
}

TEST(MemoryRequest, FiveAnchorsALevel_KeepTheTablesClasses) {
  EXPECT_EQ(request_of(kFiveAnchors, {}).num_classes, 80);
  EXPECT_EQ(request_of("yolov5n", {}).num_classes, 80);
}

TEST(MemoryRequest, FiveAnchorsALevel_MatchMoreThanThree) {
  configs::RunConfig config;
  const auto matches_of = [&](const std::string& model) {
    MemoryRequest request = request_of(model, config);
    request.plan.micro_batch_size = config.global_batch_size;
    request.plan.batch_norm_group_size = config.global_batch_size;
    request.plan.stage_begins = {0};
    request.plan.activation_policies.assign(request.layers.size(),
                                            plan::ActivationPolicy::kKeep);
    return estimate_rank_memory(request, {}).targets;
  };
  // One model has two levels of five anchors, the other has three levels of
  // three.
  EXPECT_EQ(matches_of(kFiveAnchors) * 9, matches_of("yolov5n") * 10);
}

TEST(MemoryRequest, ATeacherIsReadOnce) {
  configs::RunConfig config;
  config.teacher_model = "yolov5s";
  const MemoryRequest first = request_of("yolov5n", config);
  const MemoryRequest second = request_of("yolov5n", config);
  ASSERT_FALSE(first.teacher.empty());
  EXPECT_EQ(first.teacher.front().program, second.teacher.front().program);
}

}  // namespace
}  // namespace headroom::predict
