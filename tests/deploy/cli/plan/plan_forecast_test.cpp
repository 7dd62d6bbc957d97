#include "deploy/cli/plan/plan_forecast.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <ctime>
#include <nlohmann/json.hpp>
#include <sstream>

#include "deploy/cli/plan/plan_report.h"
#include "deploy/cli/run_request.h"
#include "parallel/base/check.h"
#include "tests/support/temporary_folder.h"

namespace headroom::cli {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

CommandLine line_of(const std::string& flags) {
  std::istringstream in("plan --synthetic-input --cfg yolov5s --img 640 " +
                        flags);
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return parse_command_line(words);
}

// The answer of `headroom plan`, including the forecast.
PlanReport answer(const std::string& flags) {
  const CommandLine given = line_of(flags);
  const auto machines = machines_of(given, nvml::Nvml());
  const CommandLine line = machines ? with_machines(given, *machines) : given;
  const RunRequest request =
      make_run_request(line, std::nullopt, 2, {}, false,
                       machines ? machines->elsewhere() : std::nullopt);
  PlanReport report =
      make_plan_report(request.config, request.expected_workers(), false,
                       request.remedies, request.card);
  report.forecast = forecast_of(given, machines, request.config, report.plan,
                                report.layers, report.card);
  report.run =
      run_of(given, machines, request.config, report.layers, report.forecast);
  return report;
}

std::string refusal(const std::string& flags) {
  try {
    answer(flags);
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(PlanForecast, FourThousandCardsAreForecastWithinTwoSeconds) {
  // Processor time is measured, because other programs may use the cores.
  const std::clock_t begin = std::clock();
  const PlanReport report = answer("--cluster p5.48xlarge:512 --batch 65536");
  const double seconds =
      static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  ASSERT_TRUE(report.forecast.has_value());
  const PlanForecast& forecast = *report.forecast;
  EXPECT_EQ(forecast.basis.machines.cards(), 4096);
  EXPECT_TRUE(forecast.step.gradient_sum.prefers_hierarchy());
  EXPECT_GT(forecast.step.efficiency(), 0.4);
  EXPECT_LE(forecast.step.efficiency(), 1);
  EXPECT_LT(seconds, 2);
}

TEST(PlanForecast, EfficiencyFallsWithTheNumberOfCards) {
  double before = 1;
  for (const auto& [nodes, batch] :
       {std::pair{1, 128}, {8, 1024}, {64, 8192}}) {
    const PlanReport report =
        answer("--cluster p5.48xlarge:" + std::to_string(nodes) + " --batch " +
               std::to_string(batch));
    ASSERT_TRUE(report.forecast.has_value());
    const double efficiency = report.forecast->step.efficiency();
    EXPECT_LT(efficiency, before) << nodes;
    before = efficiency;
  }
}

// Groups of 16 images span two cards of 8, which are in one machine.
TEST(PlanForecast, StatisticsAreNoReasonToSplitImagesOnCards) {
  const PlanReport report = answer("--cluster p5.48xlarge:64 --batch 4096");
  EXPECT_EQ(report.plan.layout.data_parallel_size, 512);
  EXPECT_THAT(report.plan.reason, Not(HasSubstr("exchanges of statistics")));
  ASSERT_TRUE(report.forecast.has_value());
  EXPECT_GT(report.forecast->step.efficiency(), 0.3);
}

TEST(PlanForecast, AMeasuredRateAndNetworkAreTaken) {
  const PlanReport report = answer(
      "--processes 4 --batch 32 --images-per-second 20 --machines 2 --network "
      "0.8,1");
  ASSERT_TRUE(report.forecast.has_value());
  const PlanForecast& forecast = *report.forecast;
  // This is the time that one process needs for its eight images.
  EXPECT_NEAR(forecast.step.compute, 0.4, 1e-9);
  EXPECT_EQ(forecast.basis.machines.number, 2);
  EXPECT_DOUBLE_EQ(forecast.basis.machines.between.bytes_per_second, 1e8);
  EXPECT_DOUBLE_EQ(forecast.basis.machines.between.latency_seconds, 1e-3);
  const nlohmann::ordered_json json = forecast_json(forecast);
  EXPECT_NEAR(json["compute_seconds"].get<double>() +
                  json["communication_seconds"].get<double>() +
                  json["host_seconds"].get<double>() +
                  json["bubble_seconds"].get<double>() +
                  json["input_seconds"].get<double>(),
              json["step_seconds"].get<double>(), 1e-12);
  EXPECT_THAT(forecast_text(forecast), HasSubstr("as --network says"));
  EXPECT_THAT(forecast_verdict(forecast), HasSubstr("4 processes"));
}

TEST(PlanForecast, ARunsNetworkIsReadFromItsFolder) {
  const testing::TemporaryFolder folder;
  const std::filesystem::path& path = folder.path();
  folder.write("plan.json",
               R"({"network": {"machines": 2, "interface": "eth0",
             "slowest_bytes_per_second": 1e8, "fastest_bytes_per_second": 2e8,
             "latency_seconds": 0.001, "is_sample": false}})");
  const std::string flags =
      "--processes 2 --batch 16 --images-per-second 20 --machines 2 --network ";
  EXPECT_DOUBLE_EQ(answer(flags + path.string())
                       .forecast->basis.machines.between.bytes_per_second,
                   1e8);
  folder.write("plan.json", "{}");
  EXPECT_THAT(refusal(flags + path.string()),
              HasSubstr("has no measured network"));
}

TEST(PlanForecast, ACardHasTheForecastOfAMachineWithIt) {
  const PlanReport card = answer("--gpu T4 --batch 16");
  const PlanReport machine = answer("--cluster g4dn.xlarge --batch 16");
  ASSERT_TRUE(card.forecast && machine.forecast);
  EXPECT_DOUBLE_EQ(card.forecast->step.compute, machine.forecast->step.compute);
  EXPECT_THAT(forecast_verdict(*card.forecast),
              ::testing::EndsWith("; its speed is assumed"));
  const PlanReport assumed = answer("--gpu RTX-3060-Laptop --batch 16");
  EXPECT_THAT(forecast_verdict(*assumed.forecast),
              HasSubstr("its speed is assumed, from peaks that are not of a "
                        "data sheet"));
  const PlanReport two = answer("--gpu RTX-4090:2 --batch 16");
  EXPECT_EQ(two.forecast->basis.machines.number, 1);
  EXPECT_EQ(two.forecast->basis.machines.cards_each, 2);
}

TEST(PlanForecast, ASlowRateIsNotZero) {
  PlanReport report = answer("--gpu T4 --batch 16");
  report.forecast->images = 1;
  report.forecast->step = {};
  report.forecast->step.compute = 2.5;
  EXPECT_THAT(forecast_verdict(*report.forecast),
              ::testing::StartsWith("0.4 images/s"));
}

// An H200 was measured: deploy/guide/gpu.md.
TEST(PlanForecast, Float32IsAsSlowAsMeasured) {
  const auto rate = [](const std::string& flags) {
    return answer("--gpu H200 --batch 64 " + flags)
        .forecast->images_per_second();
  };
  EXPECT_NEAR(rate("--precision fp32"), 404, 40);
  EXPECT_NEAR(rate("--precision fp32 --tf32"), 1256, 130);
}

double number(const nlohmann::ordered_json& json, const char* key) {
  return json.at(key).get<double>();
}

TEST(PlanForecast, ARunsTimeAndPriceAreSaidWithTheirParts) {
  const testing::TemporaryFolder folder;
  folder.write("prices.yaml", "g5.xlarge: 1.006\np5.48xlarge: 98.32\n");
  const std::string prices =
      " --prices " + (folder.path() / "prices.yaml").string();
  const std::string flags =
      "--cluster p5.48xlarge:2 --batch 1024 --epochs 20 --images 118287";
  EXPECT_FALSE(answer("--cluster p5.48xlarge:2 --batch 1024").run.has_value());
  const PlanReport report = answer(flags + prices);
  ASSERT_TRUE(report.run.has_value());
  const nlohmann::ordered_json json = run_json(*report.run);
  EXPECT_EQ(number(json, "images"), 118287);
  EXPECT_EQ(number(json, "epochs"), 20);
  EXPECT_EQ(number(json, "steps"), 20 * 116);
  const double seconds =
      number(json, "training_seconds") + number(json, "loading_seconds") +
      number(json, "first_epoch_seconds") + number(json, "validation_seconds") +
      number(json, "checkpoint_seconds");
  EXPECT_NEAR(number(json, "hours"), seconds / 3600, 1e-9);
  EXPECT_NEAR(number(json, "price_per_hour"), 2 * 98.32, 1e-9);
  EXPECT_NEAR(number(json, "price"), number(json, "hours") * 2 * 98.32, 1e-9);
  EXPECT_THAT(run_sentence(*report.run),
              ::testing::AllOf(
                  ::testing::StartsWith("20 epochs of 118287 images take "),
                  HasSubstr("; the price is "), HasSubstr(", at 196.64 an")));
  const PlanReport other =
      answer("--gpu H100 --batch 64 --images 1000 --epochs 1" + prices);
  EXPECT_FALSE(other.run->price());
  EXPECT_THAT(run_sentence(*other.run),
              ::testing::AllOf(::testing::StartsWith("1 epoch of 1000 images"),
                               HasSubstr("the price list has no price of")));
  folder.write("prices.yaml", "p5.48xlarge: cheap\n");
  EXPECT_THAT(refusal(flags + prices),
              HasSubstr("prices.yaml:1:14: the price of p5.48xlarge is"));
  for (const char* without_price :
       {"--gpu T4 --batch 16",       // nothing says how many images
        "--processes 2 --batch 16",  // nothing says how fast
        "--gpu-memory 8GiB --batch 16"}) {
    EXPECT_THAT(refusal(without_price + prices),
                HasSubstr("prices.yaml:1:14: the price of p5.48xlarge is"));
  }
}

TEST(PlanForecast, ImagesWithoutASpeedAreRefused) {
  EXPECT_THAT(refusal("--processes 2 --batch 16 --images 100"),
              HasSubstr("--images is for the time of a run, but no speed of a "
                        "card is known: name machines"));
}

TEST(PlanForecast, WithoutASpeedThereIsNoForecast) {
  EXPECT_FALSE(answer("--processes 2 --batch 16").forecast.has_value());
}

TEST(PlanForecast, WrongRatesAreRefused) {
  EXPECT_THAT(
      refusal("--processes 2 --batch 16 --network 10"),
      HasSubstr("--network is for a forecast, but no speed of a card is "
                "known: give --images-per-second N"));
  const std::string measured =
      "--processes 4 --batch 16 --images-per-second 20 ";
  EXPECT_THAT(refusal("--processes 2 --batch 16 --images-per-second fast"),
              HasSubstr("--images-per-second fast is no rate"));
  EXPECT_THAT(refusal(measured + "--machines 3 --network 10"),
              HasSubstr("4 processes cannot be shared out evenly"));
  EXPECT_THAT(refusal(measured + "--machines 2"),
              HasSubstr("nothing says how fast the network between 2 machines "
                        "is: give --network GBIT,MS"));
  EXPECT_THAT(refusal(measured + "--machines 2 --network 10,x"),
              HasSubstr("--network 10,x is no rate"));
  EXPECT_THAT(refusal("--cluster p4d.24xlarge:2 --batch 256 --machines 2"),
              HasSubstr("--cluster says how many there are"));
}

}  // namespace
}  // namespace headroom::cli
