#include "parallel/planner/card_speed.h"

#include <gtest/gtest.h>

#include "configs/layers/model_table.h"
#include "parallel/planner/plan_time.h"
#include "parallel/planner/planner.h"

namespace headroom::planner {
namespace {

std::vector<layers::LayerCost> layers_of(const std::string& model) {
  return layers::layer_costs(layers::load_model_table(model));
}

configs::RunConfig on_cards(const std::string& model, int64_t batch) {
  configs::RunConfig config;
  config.cfg = model;
  config.global_batch_size = batch;
  config.device = "all";
  config.precision = configs::Precision::kBf16;
  config.synthetic_input = true;
  return config;
}

TEST(CardSpeed, IsThatOfTheTablesRow) {
  const CardSpeed card = speed_of_card("NVIDIA H100 80GB HBM3");
  EXPECT_EQ(card.name, "NVIDIA H100 80GB");
  EXPECT_EQ(card.flops_per_second, 989e12);
  EXPECT_EQ(card.peaks_of, "");
  EXPECT_EQ(source_note(card), "");
  EXPECT_EQ(source_text(card), "its speed is assumed");
}

TEST(CardSpeed, EachRowIsFoundByItsOwnName) {
  for (const configs::CataloguedCard& card : configs::card_catalogue()) {
    EXPECT_EQ(speed_of_card(card.machine.gpu).name, card.machine.gpu);
  }
}

TEST(CardSpeed, ACardThatTheTableLacksSaysWhichRowIsAssumed) {
  const CardSpeed card = speed_of_card("Fake H80");
  EXPECT_EQ(card.name, "Fake H80");
  EXPECT_EQ(card.flops_per_second, 312e12);
  EXPECT_EQ(source_note(card),
            "; Fake H80: its speed is assumed, that of NVIDIA A100 80GB (the "
            "table of cards lacks it), in plans");
}

TEST(CardSpeed, PlansTakeTheSpeedOfTheirCard) {
  const auto layers = layers_of("yolov5s");
  const configs::RunConfig config = on_cards("yolov5s", 64);
  const plan::Plan plan = *choose_plan(config, 1, layers).plan;
  const auto seconds = [&](const CardSpeed& card) {
    return plan_time(config, plan, {layers, card}).compute;
  };
  EXPECT_EQ(seconds({}), seconds(speed_of_card("A100 80GB")));
  EXPECT_GT(seconds(speed_of_card("T4")), 4 * seconds({}));
  EXPECT_LT(seconds(speed_of_card("H200")), 0.5 * seconds({}));
}

// Exchanges of statistics take as long on every card, so they are a larger
// share of the step of a faster card.
TEST(CardSpeed, AFasterCardWaitsLongerForStatistics) {
  const auto layers = layers_of("yolov5s");
  const configs::RunConfig config = on_cards("yolov5s", 16 * 8);
  const auto share = [&](const char* card) {
    const plan::Plan plan =
        *choose_plan(config, 16, {layers, speed_of_card(card)}).plan;
    const predict::StepEstimate step =
        plan_time(config, plan, {layers, speed_of_card(card)});
    return step.statistics / step.total();
  };
  EXPECT_LT(share("T4"), 0.5 * share("H100"));
}

configs::CardMeasurement measured(const std::string& model, double scale) {
  configs::CardMeasurement one;
  one.card = "NVIDIA H200";
  one.model = model;
  for (const layers::LayerCost& layer : layers_of(model)) {
    one.parameters += layer.parameters;
  }
  one.precision = configs::Precision::kBf16;
  one.time_scale = scale;
  one.seconds_beside_layers = 0.004;
  one.date = "2026-11-30";
  return one;
}

TEST(CardSpeed, TheMostSimilarMeasurementCounts) {
  const CardSpeed card = speed_of_card("NVIDIA H200");
  const std::vector<configs::CardMeasurement> all = {measured("yolov5n", 2),
                                                     measured("yolov5l", 3)};
  configs::RunConfig config = on_cards("yolov5x", 64);
  const auto scale = [&](const char* model) {
    return with_measurement(card, config, layers_of(model), all).time_scale;
  };
  EXPECT_EQ(scale("yolov5x"), 3);
  EXPECT_EQ(scale("yolov5n"), 2);
  EXPECT_EQ(
      source_text(with_measurement(card, config, layers_of("yolov5x"), all)),
      "its speed was measured on 2026-11-30 with yolov5l");
  EXPECT_EQ(
      with_measurement(speed_of_card("T4"), config, layers_of("yolov5x"), all)
          .time_scale,
      1);
  config.precision = configs::Precision::kFp32;
  EXPECT_EQ(scale("yolov5x"), 1);
}

// A card that took 3 times the computed seconds of a step is forecast so.
TEST(CardSpeed, AForecastRepeatsWhatWasMeasured) {
  const auto layers = layers_of("yolov5s");
  configs::RunConfig config = on_cards("yolov5s", 64);
  const CardSpeed assumed = speed_of_card("NVIDIA H200");
  const CardSpeed card =
      with_measurement(assumed, config, layers, {measured("yolov5s", 3)});
  ForecastBasis basis;
  basis.card = card;
  const auto seconds = [&](int64_t images) {
    config.global_batch_size = images;
    return plan_forecast(config, *choose_plan(config, 1, layers).plan, layers,
                         basis)
        .seconds();
  };
  const double image = 3 * layer_seconds(config, layers, assumed);
  EXPECT_NEAR(seconds(64), 0.004 + 64 * image, 1e-9);
  EXPECT_NEAR(seconds(128), 0.004 + 128 * image, 1e-9);
  basis.images_per_second = 1000;  // a rate of the user outranks it
  EXPECT_NEAR(seconds(64), 0.064, 1e-9);
}

}  // namespace
}  // namespace headroom::planner
