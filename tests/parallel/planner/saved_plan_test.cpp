#include "parallel/planner/saved_plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "configs/layers/model_table.h"
#include "parallel/base/check.h"
#include "parallel/plan/plan_json.h"
#include "parallel/planner/plan_memory.h"
#include "parallel/planner/planner.h"

namespace headroom::planner {
namespace {

using ::testing::HasSubstr;

class Saved : public ::testing::Test {
 protected:
  Saved() {
    folder_ = std::filesystem::path(::testing::TempDir()) / "saved_plan";
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  static configs::RunConfig config() {
    configs::RunConfig config;
    config.cfg = "yolov5s";
    return config;
  }
  static plan::Plan another_plan() {
    configs::RunConfig given = config();
    given.layout = plan::parse_layout("pipeline=2");
    return plan_or_throw(given, 2, layers());
  }
  static const std::vector<layers::LayerCost>& layers() {
    static const std::vector<layers::LayerCost> all =
        layers::layer_costs(layers::load_model_table("yolov5s"));
    return all;
  }
  void save(const std::string& text) const {
    std::ofstream(folder_ / "plan.json") << text;
  }
  SavedPlan read(const configs::RunConfig& config, int world_size = 2) const {
    return read_saved_plan(folder_.string(), config, world_size, layers());
  }

  std::filesystem::path folder_;
};

TEST_F(Saved, ThePlanIsTheOneThatWasSaved) {
  save(plan::plan_to_json(another_plan()));
  EXPECT_EQ(read(config()).plan, another_plan());
  EXPECT_NE(plan_or_throw(config(), 2, layers()).layout, another_plan().layout);
}

TEST_F(Saved, WithoutAFileThereIsNoPlan) {
  const SavedPlan saved = read(config());
  EXPECT_FALSE(saved.plan);
  EXPECT_EQ(saved.plan_error, "");
}

TEST_F(Saved, APlanThatNoLongerServesTheRequestIsRefusedWithTheReason) {
  save(plan::plan_to_json(another_plan()));
  EXPECT_THAT(read(config(), 3).plan_error,
              HasSubstr("for 2 processes, not for 3"));
  configs::RunConfig limited = config();
  limited.memory_limit = fullest_rank_bytes(another_plan()) - 1;
  EXPECT_FALSE(read(limited).plan);
  EXPECT_THAT(read(limited).plan_error, HasSubstr("it needs"));
  plan::Plan other_model = another_plan();
  other_model.activation_policies.resize(3, plan::ActivationPolicy::kLean);
  save(plan::plan_to_json(other_model));
  EXPECT_THAT(read(config()).plan_error, HasSubstr("number of layers"));
}

TEST_F(Saved, AFileThatIsNoPlanIsRefused) {
  save("{}");
  EXPECT_THROW(read(config()), Error);
}

}  // namespace
}  // namespace headroom::planner
