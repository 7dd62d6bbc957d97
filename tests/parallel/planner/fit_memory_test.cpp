#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "configs/layers/model_table.h"
#include "parallel/plan/layout.h"
#include "parallel/plan/plan.h"
#include "parallel/planner/plan_search.h"
#include "parallel/planner/planner.h"

namespace headroom::planner {
namespace {

using ::testing::Each;
using ::testing::HasSubstr;
using ::testing::StartsWith;

constexpr int64_t kGiB = int64_t{1} << 30;

configs::RunConfig request(int64_t batch, int64_t limit) {
  configs::RunConfig config;
  config.cfg = "yolov5s";
  config.global_batch_size = batch;
  config.memory_limit = limit;
  return config;
}

std::vector<layers::LayerCost> layers_of(const configs::RunConfig& config) {
  return layers::layer_costs(layers::load_model_table(config.cfg));
}

PlanDecision decide(const configs::RunConfig& config, int world_size = 1) {
  return choose_plan(config, world_size, layers_of(config));
}

// The plan, or a refusal with a remedy that would fit.
PlanDecision advised(const configs::RunConfig& config) {
  return plan_or_remedy(config, 1, layers_of(config));
}

int64_t bytes_of(const PlanDecision& decision) {
  const auto& all = decision.plan->predicted_peak_bytes;
  return *std::max_element(all.begin(), all.end());
}

TEST(FitMemory, AShareThatFitsAtOnceIsNotCut) {
  const PlanDecision decision = decide(request(16, 64 * kGiB));
  ASSERT_TRUE(decision.plan);
  EXPECT_EQ(decision.plan->micro_batch_size, 16);
  EXPECT_EQ(plan::activations_text(decision.plan->activation_policies), "keep");
}

TEST(FitMemory, ARefusalNamesThePartOfARunThatNeedsTheBytes) {
  configs::RunConfig config = request(16, kGiB);
  config.activations = "keep";
  config.micro_batch_size = 16;
  EXPECT_THAT(decide(config).reason, HasSubstr(" in a step with activations"));
  // At the start each rank builds the whole model, although it keeps only a
  // quarter of it.
  config = request(4, 8 << 20);
  config.cfg = "yolov5n";
  config.layout = plan::parse_layout("data=4");
  config.zero_stage = 3;
  config.image_height = config.image_width = 64;
  EXPECT_THAT(decide(config, 4).reason, HasSubstr(" at the start with"));
}

TEST(FitMemory, TheLargestMultipleOfTheGroupIsTaken) {
  configs::RunConfig config = request(64, 4 * kGiB);
  const PlanDecision decision = decide(config);
  ASSERT_TRUE(decision.plan);
  EXPECT_EQ(plan::activations_text(decision.plan->activation_policies), "keep");
  EXPECT_EQ(decision.plan->micro_batch_size, 16);
  EXPECT_LE(bytes_of(decision), 4 * kGiB);
}

TEST(FitMemory, ActivationsAreMixedBeforeGroupsShrink) {
  const PlanDecision decision = decide(request(64, 2 * kGiB));
  ASSERT_TRUE(decision.plan);
  const std::string activations =
      plan::activations_text(decision.plan->activation_policies);
  EXPECT_NE(activations, "keep");
  EXPECT_THAT(decision.reason, HasSubstr("activations " + activations));
  EXPECT_EQ(decision.plan->batch_norm_group_size, 16);
  EXPECT_LE(bytes_of(decision), 2 * kGiB);
}

// The planner mixes activation policies for a given micro-batch, which is no
// larger than full recomputation allows.
TEST(FitMemory, AMixtureMayComeWithASmallerMicroBatch) {
  configs::RunConfig config = request(16, 2 * kGiB);
  config.batch_norm_group_size = 4;
  const PlanDecision decision = decide(config);
  ASSERT_TRUE(decision.plan);
  config.micro_batch_size = decision.plan->micro_batch_size;
  EXPECT_EQ(decide(config).plan, decision.plan) << "of this micro-batch";
  config.activations = "recompute";
  config.micro_batch_size = 0;
  const PlanDecision recomputed = decide(config);
  ASSERT_TRUE(recomputed.plan);
  EXPECT_LE(decision.plan->micro_batch_size, recomputed.plan->micro_batch_size);
}

TEST(FitMemory, OffloadComesBeforeSmallerGroups) {
  configs::RunConfig config = request(64, kGiB / 2);
  config.cfg = "yolov5n";
  const PlanDecision decision = decide(config);
  ASSERT_TRUE(decision.plan);
  EXPECT_EQ(decision.plan->batch_norm_group_size, 16);
  EXPECT_THAT(decision.plan->activation_policies,
              Each(plan::ActivationPolicy::kOffload));
  EXPECT_LE(bytes_of(decision), kGiB / 2);
}

TEST(FitMemory, SmallerGroupsAreTheLastResortAndNameTheFlagsForUsualGroups) {
  const configs::RunConfig config = request(64, kGiB / 2);
  const auto layers = layers_of(config);
  const PlanDecision decision = decide(config);
  ASSERT_TRUE(decision.plan);
  EXPECT_LT(decision.plan->batch_norm_group_size, 16);
  EXPECT_TRUE(decision.plan->even_batch_norm_groups);
  EXPECT_LE(bytes_of(decision), kGiB / 2);
  const auto warning =
      smaller_groups_warning(config, *decision.plan, layers, {});
  ASSERT_TRUE(warning);
  EXPECT_THAT(*warning, HasSubstr("instead of 16 images, which fit no plan of "
                                  "1 process within 512 MiB"));
  EXPECT_THAT(*warning, HasSubstr("To keep the usual groups, use --processes"));
  const configs::RunConfig usual = request(64, 2 * kGiB);
  EXPECT_EQ(smaller_groups_warning(usual, *decide(usual).plan, layers, {}),
            std::nullopt);
}

TEST(FitMemory, UnevenGroupsAreMicroBatches) {
  const configs::RunConfig config = request(100, 3 * kGiB);
  const PlanDecision decision = decide(config);
  ASSERT_TRUE(decision.plan) << decision.reason;
  EXPECT_EQ(decision.plan->micro_batch_size % 17, 0);
  EXPECT_LT(decision.plan->micro_batch_size, 100);
  EXPECT_THAT(decision.reason, HasSubstr("groups of 17 and 16"));
}

// A micro-batch of 14 can hold 14 groups of 1 or one group of 8. Neither the
// smallest nor the largest groups give the smallest possible micro-batch.
TEST(FitMemory, WhetherAnythingFitsIsAnsweredAsTheSearchDoes) {
  configs::RunConfig config = request(64, 64 * kGiB);
  config.micro_batch_size = 14;
  config.activations = "recompute";
  config.layout = plan::parse_layout("data=2");
  const auto layers = layers_of(config);
  const int64_t most = bytes_of(decide(config, 2));
  PlanSearch search(layers);
  int fitting = 0;
  for (int percent = 40; percent <= 100; percent += 3) {
    config.memory_limit = most / 100 * percent + 100;
    const bool fits = search.best(config, 2).plan.has_value();
    fitting += fits;
    EXPECT_EQ(search.any(config, 2).has_value(), fits) << percent << " %";
  }
  EXPECT_GT(fitting, 1);
  EXPECT_LT(fitting, 21);
}

// 64 x 10 + 23 images: the last batch is one group, which is larger than the
// groups of a full batch.
TEST(FitMemory, TheLastBatchOfAnEpochCounts) {
  configs::RunConfig config = request(64, 64 * kGiB);
  config.micro_batch_size = 16;
  config.label_counts = "1x640";
  const int64_t full = bytes_of(decide(config));
  config.label_counts = "1x663";
  EXPECT_GT(bytes_of(decide(config)), full * 5 / 4);
}

TEST(FitMemory, GivenValuesAreRefusedWithBothNumbersAndAFittingOne) {
  configs::RunConfig config = request(64, 2 * kGiB);
  config.activations = "keep";
  config.micro_batch_size = 64;
  const PlanDecision decision = advised(config);
  ASSERT_FALSE(decision.plan);
  EXPECT_EQ(decision.exit_code, ExitCode::kNoPlan);
  EXPECT_THAT(decision.reason,
              HasSubstr("the memory limit of a process is 2 GiB"));
  EXPECT_THAT(decision.remedy,
              StartsWith("use --activations auto --micro-batch 16 ("));
  EXPECT_THAT(decision.remedy, HasSubstr(", or --processes "));
  EXPECT_THAT(decision.remedy, HasSubstr(", or --memory-limit "));
}

TEST(FitMemory, BytesAreForTheKnownLabels) {
  configs::RunConfig config = request(64, 2 * kGiB);
  EXPECT_THAT(decide(config).reason,
              HasSubstr("needed with 100 boxes per image, as assumed"));
  config.label_counts = "0x5000 1x5000 2x5000 3x1000 4x500 5x100 6x50 40x1";
  const PlanDecision decision = decide(config);
  EXPECT_THAT(decision.reason,
              HasSubstr(" boxes in a micro-batch, by the data set's labels"));
  EXPECT_LE(bytes_of(decision), 2 * kGiB);
  config.activations = "keep";
  config.micro_batch_size = 64;
  const PlanDecision refused = advised(config);
  EXPECT_FALSE(refused.plan);
  EXPECT_THAT(refused.remedy, HasSubstr("--activations auto"));
}

TEST(FitMemory, NothingFitsInNothing) {
  const PlanDecision decision = decide(request(64, 1 << 20), 2);
  ASSERT_FALSE(decision.plan);
  EXPECT_EQ(decision.exit_code, ExitCode::kNoPlan);
}

// If memory is short, validation splits its batch, and nothing else changes.
TEST(FitMemory, AValidationTakesSoManyImagesAsFit) {
  const PlanDecision free = decide(request(32, 64 * kGiB));
  EXPECT_EQ(free.plan->validation_images, 32);
  const PlanDecision tight = decide(request(32, kGiB / 2));
  ASSERT_TRUE(tight.plan);
  EXPECT_GE(tight.plan->validation_images, 1);
  EXPECT_LT(tight.plan->validation_images, 32);
  plan::Plan more = *tight.plan;
  ++more.validation_images;
  const configs::RunConfig config = request(32, kGiB / 2);
  EXPECT_GT(predicted_peak_bytes(
                predict::memory_request(config, more, layers_of(config)))
                .front(),
            kGiB / 2);
  for (const plan::PhaseBytes& rank : tight.plan->predicted_phase_bytes) {
    EXPECT_GT(rank.validation, 0);
    EXPECT_LE(rank.validation, kGiB / 2);
    EXPECT_LE(rank.start_up, kGiB / 2);
  }
}

TEST(FitMemory, SyntheticInputIsNotValidated) {
  configs::RunConfig config = request(16, 64 * kGiB);
  config.synthetic_input = true;
  EXPECT_EQ(decide(config).plan->validation_images, 0);
}

TEST(FitMemory, TheHostsMemoryMustHoldABatchOfEachLoader) {
  configs::RunConfig config = request(16, 64 * kGiB);
  config.host_memory_limit = 10 << 20;
  const PlanDecision decision = advised(config);
  ASSERT_FALSE(decision.plan);
  EXPECT_EQ(decision.exit_code, ExitCode::kNoPlan);
  EXPECT_THAT(decision.reason,
              HasSubstr("--host-memory-limit is 10 MiB (10485760 bytes)"));
  const std::string flag = "--host-memory-limit ";
  const size_t place = decision.remedy.find(flag);
  ASSERT_NE(place, std::string::npos) << decision.remedy;
  config.host_memory_limit =
      std::stoll(decision.remedy.substr(place + flag.size())) << 20;
  const PlanDecision fits = decide(config);
  ASSERT_TRUE(fits.plan) << fits.reason;
  EXPECT_LE(fits.plan->predicted_phase_bytes.front().host,
            config.host_memory_limit);
  config.host_memory_limit -= 1 << 20;
  EXPECT_FALSE(decide(config).plan) << "a MiB less";
}

}  // namespace
}  // namespace headroom::planner
