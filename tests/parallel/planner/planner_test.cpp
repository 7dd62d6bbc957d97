#include "parallel/planner/planner.h"

#include <gmock/gmock.h>

#include <algorithm>

#include "configs/layers/model_table.h"
#include "parallel/plan/layout.h"
#include "parallel/planner/plan_time.h"
#include "parallel/planner/stage_cut.h"
#include "parallel/predict/memory_model.h"
#include "parallel/predict/memory_request.h"

namespace headroom::planner {
namespace {

using testing::HasSubstr;
using testing::ThrowsMessage;

configs::RunConfig batch_of(int64_t global_batch_size) {
  configs::RunConfig config;
  config.global_batch_size = global_batch_size;
  return config;
}

std::vector<layers::LayerCost> layers_of(const std::string& model) {
  return layers::layer_costs(layers::load_model_table(model));
}

PlanDecision plan_of(const configs::RunConfig& config, int world_size,
                     const std::string& model = "yolov5n") {
  return choose_plan(config, world_size, layers_of(model));
}

void expect_refused(const configs::RunConfig& config, int world_size,
                    const std::string& reason, const std::string& remedy) {
  const PlanDecision decision = plan_of(config, world_size);
  EXPECT_FALSE(decision.plan);
  EXPECT_EQ(decision.reason, reason);
  EXPECT_EQ(decision.remedy, remedy);
  EXPECT_EQ(decision.exit_code, ExitCode::kRequest);
}

TEST(Planner, WithoutAWishAllRanksShareTheBatch) {
  const PlanDecision decision = choose_plan(batch_of(16), 2, {});
  ASSERT_TRUE(decision.plan);
  const plan::Plan& plan = *decision.plan;
  EXPECT_EQ(plan::to_string(plan.layout), "data=2,pipeline=1,spatial=1");
  EXPECT_EQ(plan.backend, plan::Backend::kGloo);
  EXPECT_EQ(plan.micro_batch_size, 8);
  EXPECT_EQ(plan.batch_norm_group_size, 16);
  EXPECT_EQ(plan.zero_stage, 0);
  EXPECT_EQ(plan.stage_begins, std::vector<int64_t>{0});
  EXPECT_TRUE(plan.activation_policies.empty());
  EXPECT_EQ(plan.reason,
            "chosen: 16 images over data 2, 1 micro-batch of 8, batch-norm "
            "groups of 16");
  EXPECT_EQ(decision.exit_code, ExitCode::kDone);
}

TEST(Planner, ATeacherEvaluatesWholeImagesWithItsWholeNetwork) {
  configs::RunConfig config = batch_of(16);
  config.teacher = "teacher.safetensors";
  config.teacher_model = "yolov5s";
  for (const char* layout : {"pipeline=2", "spatial=2"}) {
    config.layout = plan::parse_layout(layout);
    const PlanDecision decision = plan_of(config, 2);
    EXPECT_FALSE(decision.plan);
    EXPECT_THAT(decision.reason, HasSubstr("--teacher looks at whole images"));
    EXPECT_THAT(decision.remedy, HasSubstr("use --layout data=2"));
  }
  config.layout.reset();
  configs::RunConfig alone = config;
  alone.teacher.clear();
  alone.teacher_model.clear();
  EXPECT_GT(plan_of(config, 2).plan->predicted_peak_bytes.at(0),
            plan_of(alone, 2).plan->predicted_peak_bytes.at(0) + (28 << 20))
      << "7.2 million weights";
}

TEST(Planner, OneProcess) {
  EXPECT_EQ(choose_plan(batch_of(1), 1, {}).reason,
            "chosen: 1 image over 1 process, 1 micro-batch of 1, batch-norm "
            "groups of 1");
}

TEST(Planner, AnUnevenShareIsTheLargestRanks) {
  const PlanDecision decision = choose_plan(batch_of(18), 4, {});
  ASSERT_TRUE(decision.plan);
  EXPECT_EQ(decision.plan->micro_batch_size, 5);
  EXPECT_THAT(decision.reason, testing::HasSubstr("groups of 18"));
}

TEST(Planner, UnevenGroupsAreWholeOnTheirRanks) {
  const PlanDecision decision = choose_plan(batch_of(100), 2, {});
  ASSERT_TRUE(decision.plan);
  EXPECT_EQ(decision.plan->micro_batch_size, 51);
  EXPECT_TRUE(decision.plan->even_batch_norm_groups);
  EXPECT_THAT(decision.reason, testing::HasSubstr("groups of 17 and 16"));
}

TEST(Planner, AResumedRunKeepsItsRule) {
  configs::RunConfig config = batch_of(17);
  config.batch_norm_rule = plan::BatchNormRule{1, false};
  for (const int world_size : {1, 2}) {
    const PlanDecision decision = choose_plan(config, world_size, {});
    ASSERT_TRUE(decision.plan);
    EXPECT_EQ(decision.plan->batch_norm_rule(), *config.batch_norm_rule);
    EXPECT_FALSE(shrinks_groups(config, *decision.plan));
  }
}

// One group over 64 ranks: other layouts are compared, and the plan reports
// what the exchanges cost.
TEST(Planner, AGroupOverManyRanksIsAReasonToCompareLayouts) {
  configs::RunConfig config = batch_of(512);
  config.batch_norm_rule = plan::BatchNormRule{512, true};
  const std::vector<layers::LayerCost> layers = layers_of("yolov5s");
  for (const int64_t side : {96, 640}) {
    config.image_height = config.image_width = side;
    config.layout.reset();
    const PlanDecision decision = choose_plan(config, 64, layers);
    ASSERT_TRUE(decision.plan) << decision.reason;
    EXPECT_TRUE(exchanges_far(config, *decision.plan)) << decision.reason;
    EXPECT_THAT(decision.reason, testing::HasSubstr(" would take "));
    config.layout = plan::parse_layout("data=64");
    const PlanDecision given = choose_plan(config, 64, layers);
    ASSERT_TRUE(given.plan);
    const predict::StepEstimate data = plan_time(config, *given.plan, layers);
    EXPECT_EQ(data.num_statistics, 114);
    const std::string cost = "114 exchanges of statistics a step";
    EXPECT_THAT(statistics_text(data), testing::HasSubstr(cost));
    EXPECT_EQ(decision.plan->layout, *config.layout);
    EXPECT_THAT(decision.reason, testing::HasSubstr(cost));
  }
}

// Groups of 16 are shared by two ranks each, beside one another.
TEST(Planner, FiveHundredRanksOfEightImagesSplitTheData) {
  configs::RunConfig config = batch_of(4096);
  const std::vector<layers::LayerCost> layers = layers_of("yolov5s");
  for (const int64_t side : {96, 640}) {
    config.image_height = config.image_width = side;
    config.layout.reset();
    const PlanDecision decision = choose_plan(config, 512, layers);
    ASSERT_TRUE(decision.plan) << decision.reason;
    EXPECT_FALSE(exchanges_far(config, *decision.plan)) << decision.reason;
    EXPECT_EQ(decision.plan->batch_norm_group_size, 16);
    EXPECT_EQ(decision.plan->layout.data_parallel_size, 512);
    EXPECT_EQ(plan_time(config, *decision.plan, layers).num_statistics, 114);
  }
}

TEST(Planner, TheGroupDoesNotDependOnTheNumberOfRanks) {
  for (int world_size = 1; world_size <= 48; ++world_size) {
    const PlanDecision decision = choose_plan(batch_of(48), world_size, {});
    ASSERT_TRUE(decision.plan) << world_size;
    EXPECT_EQ(decision.plan->batch_norm_group_size, 16) << world_size;
    EXPECT_EQ(decision.plan->layout.world_size(), world_size);
  }
}

TEST(Planner, TheBackendFollowsTheDevice) {
  configs::RunConfig config = batch_of(8);
  const auto backend = [&](const char* device, plan::Backend asked) {
    config.device = device;
    config.backend = asked;
    return choose_plan(config, 1, {}).plan.value().backend;
  };
  EXPECT_EQ(backend("", plan::Backend::kAuto), plan::Backend::kGloo);
  EXPECT_EQ(backend("cpu", plan::Backend::kAuto), plan::Backend::kGloo);
  EXPECT_EQ(backend("0", plan::Backend::kAuto), plan::Backend::kNccl);
  EXPECT_EQ(backend("0,1", plan::Backend::kNccl), plan::Backend::kNccl);
  EXPECT_EQ(backend("0", plan::Backend::kGloo), plan::Backend::kGloo);
  config.device = "cpu";
  config.backend = plan::Backend::kNccl;
  const PlanDecision refused = choose_plan(config, 1, {});
  EXPECT_FALSE(refused.plan);
  EXPECT_THAT(refused.remedy, testing::HasSubstr("--device"));
}

TEST(Planner, GivenValuesAreUsed) {
  configs::RunConfig config = batch_of(64);
  config.layout = plan::parse_layout("pipeline=1,data=2");
  config.micro_batch_size = 16;
  config.batch_norm_group_size = 8;
  config.backend = plan::Backend::kMpi;
  config.zero_stage = 2;
  config.activations = "recompute";
  EXPECT_TRUE(plan_needs_layers(config));
  const PlanDecision decision = choose_plan(config, 2, layers_of("yolov5n"));
  ASSERT_TRUE(decision.plan);
  EXPECT_EQ(decision.plan->micro_batch_size, 16);
  EXPECT_EQ(decision.plan->batch_norm_group_size, 8);
  EXPECT_EQ(decision.plan->backend, plan::Backend::kMpi);
  EXPECT_EQ(decision.plan->zero_stage, 2);
  EXPECT_EQ(decision.plan->activation_policies,
            std::vector(25, plan::ActivationPolicy::kRecompute));
  EXPECT_EQ(decision.plan->reason,
            "as asked: 64 images over data 2, 2 micro-batches of 16, "
            "batch-norm groups of 8, ZeRO stage 2, activations recompute");
}

TEST(Planner, AllThreeAxes) {
  configs::RunConfig config = batch_of(16);
  config.layout = plan::parse_layout("data=2,pipeline=2,spatial=2");
  config.batch_norm_group_size = 2;
  const PlanDecision decision = plan_of(config, 8);
  ASSERT_TRUE(decision.plan) << decision.reason;
  EXPECT_EQ(decision.plan->micro_batch_size, 2);
  EXPECT_EQ(decision.plan->stage_begins, (std::vector<int64_t>{0, 5}));
  EXPECT_EQ(decision.reason,
            "as asked: 16 images over data 2 x pipeline 2 x spatial 2, 4 "
            "micro-batches of 2, batch-norm groups of 2, stages from layers 0, "
            "5");
}

TEST(Planner, APipelineWithoutSeveralGroupsPerShareRunsSharesAtOnce) {
  configs::RunConfig config = batch_of(16);
  config.layout = plan::parse_layout("pipeline=2");
  EXPECT_EQ(plan_of(config, 2).plan->micro_batch_size, 16);
  config.batch_norm_group_size = 8;
  EXPECT_EQ(plan_of(config, 2).plan->micro_batch_size, 8);
  config.layout = plan::parse_layout("data=2,pipeline=2");
  EXPECT_EQ(plan_of(config, 4).plan->micro_batch_size, 8);
  config.sync_batch_norm = true;
  config.batch_norm_group_size = 0;
  const PlanDecision decision = plan_of(config, 4);
  EXPECT_EQ(decision.plan->batch_norm_group_size, 16);
  EXPECT_EQ(decision.plan->micro_batch_size, 8);
}

struct Extremes {
  double memory = 0, work = 0;  // the maxima over all stages
};

Extremes extremes_of(const configs::RunConfig& config, const plan::Plan& plan,
                     const std::vector<layers::LayerCost>& layers) {
  Extremes most;
  most.memory = static_cast<double>(predict::largest_total(
      predict::estimate_memory(predict::memory_request(config, plan, layers))));
  int64_t next = 0;
  for (const StageShare& share : stage_shares(plan, layers)) {
    EXPECT_EQ(share.begin, next);
    next = share.end;
    most.work = std::max(most.work, share.multiply_adds_per_pixel);
  }
  EXPECT_EQ(next, static_cast<int64_t>(layers.size()));
  return most;
}

// Compares with all cuts into three stages: no cut with as little memory is
// faster. The search accepts up to 5 % more than the least memory, by the bytes
// of the layers; here the whole memory model is used, which differs by at most
// 4 %.
constexpr double kMostOverLeast = 1.05 * 1.04;

TEST(Planner, StagesTakeTheLeastMemoryThenTheLeastTime) {
  for (const char* model : {"yolov5n", "yolov5s", "yolov5x6"}) {
    for (const char* activations : {"auto", "recompute"}) {
      const std::vector<layers::LayerCost> layers = layers_of(model);
      configs::RunConfig config = batch_of(16);
      config.layout = plan::parse_layout("pipeline=3");
      config.batch_norm_group_size = 2;
      config.activations = activations;
      const PlanDecision decision = choose_plan(config, 3, layers);
      ASSERT_TRUE(decision.plan) << decision.reason;
      const Extremes chosen = extremes_of(config, *decision.plan, layers);
      double least = chosen.memory;
      std::vector<Extremes> all;
      const auto num_layers = static_cast<int64_t>(layers.size());
      for (int64_t second = 1; second < num_layers - 1; ++second) {
        for (int64_t third = second + 1; third < num_layers; ++third) {
          plan::Plan other = *decision.plan;
          other.stage_begins = {0, second, third};
          const std::vector<StageShare> shares = stage_shares(other, layers);
          if (std::any_of(
                  shares.begin(), shares.end(),
                  [](const StageShare& one) { return one.parameters == 0; })) {
            continue;
          }
          all.push_back(extremes_of(config, other, layers));
          least = std::min(least, all.back().memory);
        }
      }
      EXPECT_LE(chosen.memory, kMostOverLeast * least) << model;
      for (const Extremes& other : all) {
        if (other.memory > chosen.memory) continue;
        EXPECT_GE(other.work, chosen.work) << model;
      }
    }
  }
}

// The first stage runs ahead and holds two micro-batches. If the cut depended
// only on work, it would be at layer 7, and the first stage would need more
// memory than one process without a pipeline.
TEST(Planner, BothHalvesOfAPipelineAreWellBelowOneProcess) {
  configs::RunConfig config = batch_of(16);
  config.layout = plan::parse_layout("pipeline=2");
  config.batch_norm_group_size = 4;
  const std::vector<layers::LayerCost> layers = layers_of("yolov5s");
  plan::Plan plan = *choose_plan(config, 2, layers).plan;
  EXPECT_EQ(plan.stage_begins, (std::vector<int64_t>{0, 4}));
  plan::Plan whole = plan;
  whole.layout.pipeline_parallel_size = 1;
  whole.stage_begins = {0};
  const double one_process = extremes_of(config, whole, layers).memory;
  EXPECT_LT(extremes_of(config, plan, layers).memory, 0.75 * one_process);
  plan.stage_begins = {0, 7};
  EXPECT_GT(extremes_of(config, plan, layers).memory, one_process);
}

TEST(Planner, ZeroWithoutADataAxisIsAcceptedAndChangesNothing) {
  configs::RunConfig config = batch_of(16);
  config.zero_stage = 3;
  config.layout = plan::parse_layout("pipeline=2");
  const PlanDecision decision = plan_of(config, 2);
  ASSERT_TRUE(decision.plan);
  EXPECT_EQ(decision.plan->zero_stage, 3);
  EXPECT_THAT(decision.reason,
              HasSubstr("ZeRO stage 3 (which a data axis of 1 leaves without "
                        "effect)"));
}

TEST(Planner, ABatchSmallerThanTheDataAxisIsRefusedWithBothNumbers) {
  configs::RunConfig config = batch_of(1);
  config.layout = plan::parse_layout("data=2");
  expect_refused(config, 2,
                 "global_batch_size (--batch) 1 < data axis 2: a process would "
                 "have no image",
                 "use --batch 2 or more, or --layout data=1 or less");
}

TEST(Planner, ValidationMayHaveMoreRanksThanABatchHasImages) {
  configs::RunConfig config = batch_of(1);
  config.command = "val";
  const PlanDecision decision = choose_plan(config, 2, {});
  ASSERT_TRUE(decision.plan) << decision.reason;
  EXPECT_EQ(decision.plan->layout.data_parallel_size, 2);
  EXPECT_EQ(decision.plan->micro_batch_size, 1);
}

TEST(Planner, ALayoutOfAnotherSizeIsRefusedWithItsProduct) {
  configs::RunConfig config = batch_of(16);
  config.layout = plan::parse_layout("data=2,pipeline=3");
  expect_refused(config, 4,
                 "--layout: data 2 x pipeline 3 x spatial 1 = 6 processes, but "
                 "there are 4",
                 "use --processes 6 (under mpirun or srun it counts per slot), "
                 "or a layout of 4");
}

// Images are validated at the size of --img, but trained at up to 1.5 times
// this size.
TEST(Planner, WithMultiScaleAPlanIsForTheLargestSize) {
  const auto at = [](int64_t side, bool multi_scale) {
    configs::RunConfig config = batch_of(8);
    config.image_height = config.image_width = side;
    config.multi_scale = multi_scale;
    return plan_of(config, 1).plan->predicted_phase_bytes.at(0);
  };
  const plan::PhaseBytes scaled = at(128, true);
  EXPECT_EQ(scaled.training, at(192, false).training);
  EXPECT_EQ(scaled.validation, at(128, false).validation);

  // A batch that only fits at the size of --img is refused with multi-scale.
  configs::RunConfig config = batch_of(8);
  config.image_height = config.image_width = 128;
  config.activations = "keep";
  config.micro_batch_size = 8;
  config.memory_limit = at(128, false).training;
  EXPECT_TRUE(plan_of(config, 1).plan);
  config.multi_scale = true;
  EXPECT_FALSE(plan_of(config, 1).plan);
  EXPECT_EQ(plan_of(config, 1).exit_code, ExitCode::kNoPlan);
}

TEST(Planner, WithMultiScaleTimeIsThatOfTheMeanSize) {
  configs::RunConfig config = batch_of(8);
  const auto at = [&](int64_t side) {
    config.image_height = config.image_width = side;
    return plan_time(config, *plan_of(config, 1).plan, layers_of("yolov5n"))
        .total();
  };
  double sum = 0;
  for (const int64_t side : {64, 96, 128, 160, 192}) sum += at(side);
  config.multi_scale = true;
  EXPECT_NEAR(at(128), sum / 5, 1e-12 * sum);
}

TEST(Planner, MultiScaleDoesNotCutImages) {
  configs::RunConfig config = batch_of(4);
  config.multi_scale = true;
  config.layout = plan::parse_layout("spatial=2");
  expect_refused(config, 2,
                 "--multi-scale resizes whole images, and the layout is data 1 "
                 "x pipeline 1 x spatial 2 = 2",
                 "use --layout data=2, with --zero and --activations where "
                 "memory is short, or a pipeline");
  // The planner does not cut images either when it chooses a layout for a
  // memory limit, here for one image on two processes.
  config.layout.reset();
  config.global_batch_size = 1;
  config.memory_limit = int64_t{150} << 20;
  config.multi_scale = false;
  EXPECT_EQ(plan_of(config, 2).plan->layout.spatial_parallel_size, 2);
  config.multi_scale = true;
  const PlanDecision chosen = plan_of(config, 2);
  EXPECT_TRUE(!chosen.plan || chosen.plan->layout.spatial_parallel_size == 1);
}

TEST(Planner, GraphsHoldLayersThatWaitForNoPeer) {
  const auto with = [](const std::string& layout, int zero,
                       const std::string& activations, int64_t group) {
    configs::RunConfig config = batch_of(8);
    config.device = "0,1";
    config.cuda_graphs = true;
    config.layout = plan::parse_layout(layout);
    config.zero_stage = zero;
    config.activations = activations;
    config.batch_norm_group_size = group;
    return config;
  };
  const std::string remedy =
      "use --layout data=N, --zero 0 or 1, --activations keep, lean or "
      "recompute and a --bn-group within a rank's share, or leave it out";
  const auto refused = [&](const configs::RunConfig& config,
                           const std::string& why) {
    expect_refused(
        config, 2,
        "--cuda-graphs captures layers that wait for nobody, but " + why,
        remedy);
  };
  refused(with("pipeline=2", 0, "keep", 8), "stages exchange maps");
  refused(with("spatial=2", 0, "keep", 8), "ranks exchange rows of maps");
  refused(with("data=2", 2, "keep", 4),
          "ZeRO 2 exchanges gradients in every backward");
  refused(with("data=2", 0, "offload", 4),
          "offloaded maps go through the host");
  refused(with("data=2", 0, "keep", 8), "groups of batch norm span ranks");
  configs::RunConfig uneven = with("data=2", 0, "keep", 1);
  uneven.micro_batch_size = 3;
  refused(uneven, "a step has micro-batches of several sizes");
  EXPECT_TRUE(plan_of(with("data=2", 1, "recompute", 4), 2).plan);
}

TEST(Planner, MoreStagesThanLayersWithParametersAreRefused) {
  configs::RunConfig config = batch_of(16);
  config.layout = plan::parse_layout("pipeline=20");
  expect_refused(config, 20,
                 "--layout pipeline=20: every stage needs a layer with "
                 "parameters, and 20 stages > 19 such layers of the model",
                 "use pipeline=19 or less");
  config.layout = plan::parse_layout("pipeline=19");
  EXPECT_TRUE(plan_of(config, 19).plan);
}

TEST(Planner, MoreSpatialRanksThanBlocksAreRefused) {
  configs::RunConfig config = batch_of(16);
  config.image_height = 100;  // rounded up to 128
  config.layout = plan::parse_layout("spatial=5");
  expect_refused(config, 5,
                 "--layout spatial=5: an image is cut at multiples of the "
                 "model's largest stride, and 5 ranks > 128 rows / 32 = 4 "
                 "blocks",
                 "use spatial=4 or less, or --img 160 or more");
  config.layout = plan::parse_layout("spatial=4");
  EXPECT_TRUE(plan_of(config, 4).plan);
  // An image has only 2 blocks of 64 rows here, for 4 ranks.
  EXPECT_FALSE(plan_of(config, 4, "yolov5n6").plan);
  config.rect = true;
  EXPECT_TRUE(plan_of(config, 4).plan);
}

TEST(Planner, AMicroBatchIsAMultipleOfTheGroupOrAWholeShare) {
  configs::RunConfig config = batch_of(16);
  config.batch_norm_group_size = 2;
  config.micro_batch_size = 3;
  expect_refused(config, 2,
                 "micro_batch_size 3 is neither a multiple of "
                 "batch_norm_group_size 2 nor a rank's whole share of 8 (16 "
                 "images / 2 ranks): the samples of a group must be in flight "
                 "together",
                 "use --micro-batch 2, or --bn-group 3 from the start of a "
                 "run: it changes the mathematics");
  config.batch_norm_group_size = 4;
  config.micro_batch_size = 1;
  EXPECT_THAT(plan_of(config, 2).remedy, HasSubstr("use --micro-batch 4,"));
  // Checks every pair of a group size and a micro-batch size on two ranks.
  for (int64_t group = 1; group <= 16; ++group) {
    for (int64_t micro_batch = 1; micro_batch <= 16; ++micro_batch) {
      config.batch_norm_group_size = group;
      config.micro_batch_size = micro_batch;
      const PlanDecision decision = plan_of(config, 2);
      EXPECT_EQ(decision.plan.has_value(),
                micro_batch >= 8 || micro_batch % group == 0)
          << micro_batch << " and " << group;
      // The value that the refusal suggests must work.
      if (decision.plan) continue;
      const std::string flag = "--micro-batch ";
      config.micro_batch_size = std::stoll(
          decision.remedy.substr(decision.remedy.find(flag) + flag.size()));
      EXPECT_TRUE(plan_of(config, 2).plan) << decision.remedy;
    }
  }
}

TEST(Planner, AMicroBatchAboveTheShareIsTheShare) {
  configs::RunConfig config = batch_of(16);
  config.micro_batch_size = 12;
  EXPECT_EQ(plan_of(config, 2).plan->micro_batch_size, 8);
}

TEST(Planner, AGroupLargerThanTheBatchIsRefused) {
  configs::RunConfig config = batch_of(16);
  config.batch_norm_group_size = 32;
  expect_refused(config, 1,
                 "batch_norm_group_size (--bn-group) 32 > global_batch_size "
                 "(--batch) 16",
                 "use --bn-group 16 for one group per step");
}

TEST(Planner, SyncBatchNormAgainstAnotherGroupIsRefused) {
  configs::RunConfig config = batch_of(16);
  config.sync_batch_norm = true;
  config.batch_norm_group_size = 4;
  expect_refused(config, 1,
                 "--sync-bn makes one group of the whole --batch of 16, but "
                 "--bn-group is 4",
                 "leave one of the two out");
  config.batch_norm_group_size = 16;
  EXPECT_EQ(plan_of(config, 1).plan->batch_norm_group_size, 16);
}

TEST(Planner, ARefusalAsAnErrorIsOneLine) {
  configs::RunConfig config = batch_of(1);
  EXPECT_THAT([&] { plan_or_throw(config, 2, {}); },
              ThrowsMessage<Error>(
                  "[plan] global_batch_size (--batch) 1 < data axis 2: a "
                  "process would have no image: use --batch 2 or more, or "
                  "--layout data=1 or less"));
}

}  // namespace
}  // namespace headroom::planner
