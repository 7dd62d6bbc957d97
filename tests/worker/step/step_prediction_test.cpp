// Bytes of a step beyond the prediction are attributed to one item, with one
// warning.
#include "worker/step/step_prediction.h"

#include <gtest/gtest.h>

#include <functional>
#include <initializer_list>
#include <string>
#include <utility>
#include <vector>

#include "parallel/activations/counting_allocator.h"
#include "parallel/activations/saved_tensor_policy.h"
#include "parallel/predict/memory_request.h"
#include "tests/support/run_ranks.h"
#include "tests/worker/step/step_rank.h"

namespace headroom::step {
namespace {

activations::CategoryBytes bytes(
    std::initializer_list<std::pair<MemoryCategory, int64_t>> known) {
  activations::CategoryBytes result{};
  for (const auto& [category, size] : known)
    result[static_cast<size_t>(category)] = size;
  return result;
}

TEST(ItemToBlame, IsTheOneThatExceedsByMost) {
  predict::MemoryEstimate estimate;
  estimate.parameters = 90;
  estimate.statistics = 10;
  estimate.gradients = 100;
  estimate.accumulated_gradients = 100;
  estimate.moments = 100;
  estimate.average = 100;
  estimate.activations = 500;
  using Category = MemoryCategory;
  const activations::CategoryBytes as_predicted =
      bytes({{Category::kParameters, 100},
             {Category::kGradients, 200},
             {Category::kOptimizer, 100},
             {Category::kAverage, 100},
             {Category::kActivations, 450},
             {Category::kLoss, 50}});
  const std::vector<std::pair<Category, std::string>> cases = {
      {Category::kParameters, "parameters"},
      {Category::kGradients, "gradients"},
      {Category::kOptimizer, "moments"},
      {Category::kAverage, "average"},
      {Category::kActivations, "activations"},
      {Category::kLoss, "activations"},
      {Category::kWorkspace, "activations"}};
  for (const auto& [category, name] : cases) {
    activations::CategoryBytes measured = as_predicted;
    measured[static_cast<size_t>(category)] += 7;
    const memory::MemoryItem item = memory::item_to_blame(estimate, measured);
    EXPECT_EQ(item.name, name);
    EXPECT_EQ(item.measured - item.predicted, 7) << name;
  }
}

configs::RunConfig config_of_two_images() {
  configs::RunConfig config;
  config.cfg = "yolov5n";
  config.synthetic_input = true;
  config.image_height = config.image_width = 64;
  config.global_batch_size = config.batch_norm_group_size = 2;
  return config;
}

struct Seen {
  std::vector<memory::StepEvent> events;
  std::vector<double> ratios;
};

// Runs three steps on one rank; `change` edits the run's request.
Seen train(const std::function<void(predict::MemoryRequest&)>& change) {
  activations::CountingAllocator::install();
  activations::install_saved_tensor_policies();
  const configs::RunConfig config = config_of_two_images();
  Seen seen;
  run_ranks(1, [&](int, collectives::Communicator& communicator) {
    plan::Plan plan;
    plan.micro_batch_size = plan.batch_norm_group_size = 2;
    collectives::Mesh mesh(communicator, plan.layout);
    StepRank run(config, plan, mesh);
    run.options.memory = predict::memory_request(
        config, plan,
        layers::layer_costs(layers::load_model_table(config.cfg)));
    change(*run.options.memory);
    for (int step = 0; step < 3; ++step) {
      const StepResult result = run.step();
      ASSERT_TRUE(result.committed);
      seen.events.insert(seen.events.end(), result.events.begin(),
                         result.events.end());
      seen.ratios.push_back(
          static_cast<double>(result.predicted_peak_bytes.at(0)) /
          static_cast<double>(result.measured_peak_bytes.at(0)));
    }
  });
  return seen;
}

TEST(StepPrediction, IsCloseToTheMeasuredBytes) {
  const Seen seen = train([](predict::MemoryRequest&) {});
  for (const memory::StepEvent& event : seen.events) {
    ADD_FAILURE() << event.reason << event.detail_json;
  }
  for (const double ratio : seen.ratios) {
    EXPECT_GE(ratio, 1);
    EXPECT_LE(ratio, 1.05);
  }
}

TEST(StepPrediction, WarnsOnceOfAnItem) {
  const Seen seen =
      train([](predict::MemoryRequest& request) { request.num_moments = 0; });
  for (const double ratio : seen.ratios) EXPECT_LT(ratio, 1);
  ASSERT_EQ(seen.events.size(), 1u);
  EXPECT_EQ(seen.events[0].kind, EventKind::kMemoryPrediction);
  EXPECT_NE(seen.events[0].reason.find("for moments"), std::string::npos)
      << seen.events[0].reason;
}

}  // namespace
}  // namespace headroom::step
