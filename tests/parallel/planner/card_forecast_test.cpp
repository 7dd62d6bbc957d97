// Forecasts and layouts of clusters from one machine to 512. The expected
// efficiency is arithmetic of its own, written down from the code's steps and
// from rates of single cards; nothing of it was measured on several cards.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "configs/layers/model_table.h"
#include "parallel/plan/layout.h"
#include "parallel/planner/plan_search.h"
#include "parallel/planner/plan_time.h"
#include "parallel/planner/planner.h"

namespace headroom::planner {
namespace {

struct Cluster {
  std::string machine;
  int64_t number;
};
const std::vector<Cluster> kClusters = {
    {"p4d.24xlarge", 1}, {"p4d.24xlarge", 8},  {"p4d.24xlarge", 64},
    {"p5.48xlarge", 1},  {"p5.48xlarge", 2},   {"p5.48xlarge", 8},
    {"p5.48xlarge", 64}, {"p5.48xlarge", 512}, {"g6.12xlarge", 1},
    {"g6.12xlarge", 8},  {"g6.48xlarge", 1},   {"g6.48xlarge", 16}};
const std::vector<int64_t> kImagesOfCard = {8, 16, 64};

// Blocks, MB of float32 gradients, and the host's milliseconds for a step.
struct Model {
  double blocks, megabytes, buckets, host;
};
const std::map<std::string, Model> kModels = {
    {"yolov5n", {57, 7.5, 3, 7}},
    {"yolov5s", {57, 28.9, 8, 7}},
    {"yolov5l", {101, 186, 8, 12}},
    {"yolov5x", {123, 347, 11, 14.5}}};

// Images per second of one card alone with 16 and with 64 images.
using Rates = std::map<std::string, std::pair<double, double>>;
const std::map<char, Rates> kRates = {{'5',
                                       {{"yolov5n", {1900, 3700}},
                                        {"yolov5s", {1400, 1950}},
                                        {"yolov5l", {420, 465}},
                                        {"yolov5x", {245, 265}}}},
                                      {'4',
                                       {{"yolov5n", {1250, 2050}},
                                        {"yolov5s", {800, 1050}},
                                        {"yolov5l", {210, 230}},
                                        {"yolov5x", {118, 128}}}},
                                      {'6',
                                       {{"yolov5n", {270, 310}},
                                        {"yolov5s", {140, 155}},
                                        {"yolov5l", {33, 36}},
                                        {"yolov5x", {18.5, 20}}}}};

// With few images a card waits for its host.
double rate_alone(const Cluster& cluster, const std::string& model,
                  int64_t images) {
  const auto& [few, many] = kRates.at(cluster.machine[1]).at(model);
  const double rate = images == 64 ? many : few;
  return std::min(rate,
                  1e3 * static_cast<double>(images) / kModels.at(model).host);
}

// Milliseconds of sums of `megabytes` over all cards: 4 MiB take so long
// inside a machine, and the rest crosses the network once in each direction.
double sum_milliseconds(const configs::Instance& machine, double number,
                        double megabytes, double calls) {
  const double inside =
      (machine.link.starts_with("NV")
           ? (machine.link_gigabytes_per_second == 900 ? 0.07 : 0.09)
           : 2 * 4.2 / 12 * static_cast<double>(machine.gpus - 1) /
                     static_cast<double>(machine.gpus) +
                 0.02 * static_cast<double>(machine.gpus - 1)) *
      megabytes / 4.2;
  if (number == 1) return inside;
  const double gigabytes =
      static_cast<double>(machine.network_gigabits_per_second) / 8 * 0.85;
  return inside + 2 * megabytes / gigabytes + calls * 0.028 * std::log2(number);
}

// `counted`: megabytes of one group's statistics in a forward or a backward.
double expected_efficiency(const Cluster& cluster, const std::string& name,
                           int64_t images, double counted) {
  const configs::Instance& machine = configs::find_instance(cluster.machine);
  const Model& model = kModels.at(name);
  const auto machines = static_cast<double>(cluster.number);
  const auto each = static_cast<double>(machine.gpus);
  const double cards = machines * each;
  const double alone =
      1e3 * static_cast<double>(images) / rate_alone(cluster, name, images);
  // 8 images are half a batch-norm group, so that two cards of a machine sum
  // its statistics in each block, forward and backward, there and back.
  const double sums = images == 8 ? 2 * model.blocks : 0;
  const double hop = machine.link.starts_with("NV") ? 0.004 : 0.01;
  const double gigabytes =
      machine.link.starts_with("NV")
          ? static_cast<double>(machine.link_gigabytes_per_second) / 2 * 0.9
          : 12;
  const double statistics =
      images == 8 ? sums * hop + 4 * counted / gigabytes : 0;
  const double host = model.host + (model.buckets + sums) * 0.08;
  const double backward = std::max(alone, host) * 2 / 3;
  const double all =
      sum_milliseconds(machine, machines, model.megabytes, model.buckets);
  // The first layers of backward have most of the parameters, and sums go on
  // beside the rest.
  const double hidden = std::min(all, 0.7 * backward);
  const double last = sum_milliseconds(machine, machines, 1.0, 1);
  const double exposed = all - hidden + 2 * last + statistics;
  const double line = 0.06;
  // Fourteen doubles for each card, behind the gradients.
  const double vote =
      sum_milliseconds(machine, machines, cards * 112e-6, 1) + 0.08;
  const double doublings = std::log2(cards) / 3;
  const double slowest = 0.005 * doublings * (doublings + 1) / 2 * alone;
  return alone / (std::max(alone + 0.08 * hidden, host) + exposed + line +
                  vote + slowest);
}

configs::RunConfig request_of(const std::string& model, int64_t batch) {
  configs::RunConfig config;
  config.cfg = model;
  config.global_batch_size = batch;
  config.device = "0";
  config.precision = configs::Precision::kBf16;
  config.synthetic_input = true;
  return config;
}

TEST(CardForecast, EfficiencyIsThatOfTheStepsArithmetic) {
  for (const auto& [model, figures] : kModels) {
    const auto layers = layers::layer_costs(layers::load_model_table(model));
    double blocks = 0, parameters = 0, counted = 0;
    for (const layers::LayerCost& layer : layers) {
      parameters += static_cast<double>(layer.parameters);
      if (layer.is_head()) continue;
      for (const auto& step : layer.program->steps) {
        if (!step.facts.sums_channels) continue;
        ++blocks;
        counted += 16e-6 * static_cast<double>(layer.channels);
      }
    }
    EXPECT_EQ(blocks, figures.blocks) << model;
    EXPECT_NEAR(parameters * 4e-6, figures.megabytes, 2) << model;
    for (const Cluster& cluster : kClusters) {
      const configs::Instance& machine =
          configs::find_instance(cluster.machine);
      const int64_t cards = cluster.number * machine.gpus;
      for (const int64_t images : kImagesOfCard) {
        configs::RunConfig config = request_of(model, cards * images);
        config.layout =
            plan::ParallelLayout{.data_parallel_size = static_cast<int>(cards)};
        const PlanDecision decision =
            choose_plan(config, static_cast<int>(cards), {});
        ASSERT_TRUE(decision.plan) << decision.reason;
        ForecastBasis basis;
        basis.machines = machines_of(machine, cards);
        basis.images_per_second = rate_alone(cluster, model, images);
        const predict::StepForecast step =
            plan_forecast(config, *decision.plan, layers, basis);
        EXPECT_NEAR(step.efficiency(),
                    expected_efficiency(cluster, model, images, counted), 0.05)
            << model << ", " << images << " images a card, " << cluster.number
            << " x " << cluster.machine << "; compute " << 1e3 * step.compute
            << " communication " << 1e3 * step.communication << " host "
            << 1e3 * step.host;
      }
    }
  }
}

// Nothing but memory is a reason for a pipeline or for split images.
TEST(CardForecast, OnlyMemorySplitsMoreThanTheData) {
  for (const auto& [model, figures] : kModels) {
    const auto layers = layers::layer_costs(layers::load_model_table(model));
    PlanSearch search(layers);
    for (const Cluster& cluster : kClusters) {
      const configs::Instance& machine =
          configs::find_instance(cluster.machine);
      const auto cards = static_cast<int>(cluster.number * machine.gpus);
      for (const int64_t images : kImagesOfCard) {
        configs::RunConfig config = request_of(model, cards * images);
        config.memory_limit = predict::tensor_budget(
            machine.gpu_memory_bytes, predict::kGpuCommunicationBytes);
        const PlanDecision decision = search.best(config, cards);
        ASSERT_TRUE(decision.plan) << decision.reason;
        if (decision.plan->layout.data_parallel_size == cards) continue;
        config.layout = plan::ParallelLayout{.data_parallel_size = cards};
        const PlanDecision data = search.best(config, cards);
        EXPECT_TRUE(!data.plan || shrinks_groups(config, *data.plan))
            << model << ", " << images << " images a card, " << cluster.number
            << " x " << cluster.machine << ": " << decision.reason;
      }
    }
  }
}

// A large image on small cards: no policy makes room for it on one of them.
TEST(CardForecast, MemoryMaySplitImages) {
  configs::RunConfig config = request_of("yolov5n", 1);
  config.image_height = config.image_width = 2048;
  config.memory_limit = int64_t{600} << 20;
  const PlanDecision decision = choose_plan(
      config, 4, layers::layer_costs(layers::load_model_table(config.cfg)));
  ASSERT_TRUE(decision.plan) << decision.reason;
  EXPECT_EQ(decision.plan->layout.data_parallel_size, 1);
}

// A step of yolov5x on 8 cards takes 65 ms. Under ZeRO each rank sends its part
// of weights, momentum and average, 130 MB, through the host at 1 GB/s while
// the next step computes.
TEST(CardForecast, CopiesThroughTheHostAreLongerThanTheStepThatHidesThem) {
  const auto layers = layers::layer_costs(layers::load_model_table("yolov5x"));
  const auto seconds_with = [&](int64_t zero) {
    configs::RunConfig config = request_of("yolov5x", 128);
    config.zero_stage = zero;
    const PlanDecision decision = choose_plan(config, 8, {});
    ForecastBasis basis;
    basis.machines = machines_of(configs::find_instance("p5.48xlarge"), 8);
    basis.images_per_second = 245;
    return plan_forecast(config, *decision.plan, layers, basis).seconds();
  };
  const double whole = seconds_with(0);
  EXPECT_NEAR(whole, 16.0 / 245, 5e-3);
  for (const int64_t zero : {1, 2}) {
    EXPECT_GT(seconds_with(zero), whole + 0.06) << zero;
    EXPECT_LT(seconds_with(zero), whole + 0.09) << zero;
  }
  EXPECT_GT(seconds_with(3), whole + 0.06);
}

TEST(CardForecast, ARunIsTheSumOfItsParts) {
  const auto layers = layers::layer_costs(layers::load_model_table("yolov5s"));
  configs::RunConfig config = request_of("yolov5s", 512);
  config.epochs = 10;
  config.synthetic_input = false;
  const PlanDecision decision = choose_plan(config, 8, {});
  ForecastBasis basis;
  basis.machines = machines_of(configs::find_instance("p5.48xlarge"), 8);
  basis.images_per_second = 1950;
  basis.cores_each = 192;
  const auto forecast = [&](int64_t images) {
    return run_forecast(config, layers, basis,
                        plan_forecast(config, *decision.plan, layers, basis),
                        images);
  };
  const RunForecast coco = forecast(118287);
  EXPECT_EQ(coco.steps, 10 * 232);
  EXPECT_EQ(coco.epochs, 10);
  // 64 threads make 80 samples a second each, and the cache of 1 GiB does not
  // hold the images.
  EXPECT_NEAR(coco.training + coco.loading + coco.first_epoch - 15,
              10 * 232 * 512 / 5120.0, 1);
  EXPECT_GT(coco.validation, 10);
  EXPECT_GT(coco.checkpoints, 0);
  EXPECT_NEAR(coco.images_per_second(), 10 * 118287 / coco.seconds(), 1e-6);
  // Images that the cache holds are waited for less after the first epoch.
  const RunForecast few = forecast(512);
  EXPECT_LT(few.loading / 9, few.first_epoch - 15);
  // --val-share bounds what the ends of epochs take.
  config.validation_share = 0.01;
  const RunForecast bounded = forecast(118287);
  EXPECT_NEAR(bounded.validation + bounded.checkpoints,
              0.01 * bounded.seconds(), 1e-6);
  EXPECT_EQ(bounded.training, coco.training);
  config.validation_share = configs::kAutomaticShare;
  config.max_steps = 116;
  EXPECT_EQ(forecast(118287).epochs, 0.5);
  EXPECT_LT(forecast(118287).seconds(), coco.seconds() / 5);
}

}  // namespace
}  // namespace headroom::planner
