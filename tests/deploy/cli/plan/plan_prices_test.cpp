#include "deploy/cli/plan/plan_prices.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "parallel/base/check.h"
#include "parallel/predict/label_bound.h"
#include "tests/support/temporary_folder.h"

namespace headroom::cli {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Not;
using testing::TemporaryFolder;

constexpr int64_t kGiB = int64_t{1} << 30;

std::string refusal(const std::string& text, const std::string& file) {
  try {
    parse_prices(text, file);
  } catch (const Error& error) {
    EXPECT_EQ(error.exit_code(), ExitCode::kRequest);
    return error.what();
  }
  return "accepted";
}

TEST(ParsePrices, YamlWithAndWithoutASpeed) {
  const auto machines = parse_prices(
      "g5.xlarge: 1.006\n"
      "p4d.24xlarge:2: {price: 32.77, images_per_second: 2100}\n"
      "RTX 4090: 0.4\n",
      "prices.yaml");
  ASSERT_EQ(machines.size(), 3u);
  EXPECT_EQ(machines[0].name, "g5.xlarge");
  EXPECT_EQ(machines[0].number, 1);
  EXPECT_DOUBLE_EQ(machines[0].price_per_hour, 1.006);
  EXPECT_FALSE(machines[0].images_per_second);
  EXPECT_EQ(machines[1].name, "p4d.24xlarge");
  EXPECT_EQ(machines[1].number, 2);
  EXPECT_DOUBLE_EQ(*machines[1].images_per_second, 2100);
  EXPECT_TRUE(machines[2].is_card);
}

TEST(ParsePrices, CsvWithAndWithoutAHeading) {
  for (const char* heading : {"", "machine,price,images_per_second\r\n"}) {
    const auto machines = parse_prices(
        heading + std::string("g5.xlarge, 1.006\n\nRTX 4090:2,0.4, 300\r\n"),
        "prices.csv");
    ASSERT_EQ(machines.size(), 2u);
    EXPECT_DOUBLE_EQ(machines[0].price_per_hour, 1.006);
    EXPECT_EQ(machines[1].number, 2);
    EXPECT_DOUBLE_EQ(*machines[1].images_per_second, 300);
  }
}

TEST(ParsePrices, WrongEntriesAreRefusedWithTheirPlace) {
  EXPECT_THAT(refusal("g5.xlarge: 1\ng5.xlage: 2\n", "p.yaml"),
              HasSubstr("p.yaml:2:1: the catalogue has no machine and no card "
                        "'g5.xlage': the nearest real ones are g5.xlarge"));
  EXPECT_THAT(refusal("g5.xlarge: $1\n", "p.yaml"),
              HasSubstr("p.yaml:1:12: the price of g5.xlarge is '$1'"));
  EXPECT_THAT(refusal("g5.xlarge: -1\n", "p.yaml"), HasSubstr("p.yaml:1:12: "));
  EXPECT_THAT(refusal("g5.xlarge: 0\n", "p.yaml"), HasSubstr("p.yaml:1:12: "));
  EXPECT_THAT(refusal("g5.xlarge: nan\n", "p.yaml"),
              HasSubstr("p.yaml:1:12: "));
  EXPECT_THAT(refusal("g5.xlarge:\n", "p.yaml"), HasSubstr("p.yaml:1:1: "));
  EXPECT_THAT(refusal("g5.xlarge: {cost: 1}\n", "p.yaml"),
              HasSubstr("p.yaml:1:13: unknown key 'cost'"));
  EXPECT_THAT(refusal("g5.xlarge:0: 1\n", "p.yaml"),
              HasSubstr("p.yaml:1:1: 'g5.xlarge:0' has no number"));
  EXPECT_THAT(refusal("", "p.yaml"), HasSubstr("p.yaml:1:1: there are no"));
  EXPECT_THAT(refusal("- 1\n", "p.yaml"), HasSubstr("p.yaml:1:1: "));
  EXPECT_THAT(refusal("name,price\n g5.xlarge,one\n", "p.csv"),
              HasSubstr("p.csv:2:12: the price of g5.xlarge is 'one'"));
  EXPECT_THAT(refusal("g5.xlarge;1\n", "p.csv"),
              HasSubstr("p.csv:1:1: the line has 1 cell"));
  EXPECT_THAT(refusal("g5.xlarge,1\ng5.xlarge,2\n", "p.csv"),
              HasSubstr("p.csv:2:1: 'g5.xlarge' has a price already"));
  EXPECT_THAT(refusal("g5.xlarge,\"1\"\n", "p.csv"),
              HasSubstr("p.csv:1:11: a quotation mark"));
  EXPECT_THAT(refusal("machine,price\n", "p.csv"),
              HasSubstr("p.csv:1:1: there are no prices"));
}

PricedPlan plan(const std::string& name, double price,
                std::optional<double> speed, const std::string& refusal = "") {
  return {.machine = {.name = name,
                      .price_per_hour = price,
                      .images_per_second = speed},
          .num_gpus = 2,
          .gpu_memory_bytes = 10 * kGiB,
          .refusal = refusal,
          .predicted_peak_bytes = kGiB};
}

TEST(RankByPrice, TheCheapestEpochFirstThenMemoryThenWhatDoesNotFit) {
  std::vector<PricedPlan> plans = {
      plan("refused", 0.1, 1000, "too large"),
      plan("memory dear", 5, {}),
      plan("slow", 1, 10),
      plan("memory cheap", 4, {}),
      plan("fast", 3, 100),
  };
  rank_by_price(plans, 3600);
  std::vector<std::string> names;
  for (const PricedPlan& one : plans) names.push_back(one.machine.name);
  EXPECT_THAT(names, ElementsAre("fast", "slow", "memory cheap", "memory dear",
                                 "refused"));
  // 3,600 images at 100 images per second take 36 s, a hundredth of an hour.
  EXPECT_DOUBLE_EQ(*plans[0].epoch_price(3600), 0.03);
  EXPECT_DOUBLE_EQ(plans[2].price_per_gibibyte(), 0.2);
}

TEST(RankByPrice, SeveralMachinesCostSeveralTimesAsMuch) {
  PricedPlan two = plan("fast", 3, 100);
  two.machine.number = 2;
  EXPECT_DOUBLE_EQ(two.price_per_hour(), 6);
  EXPECT_DOUBLE_EQ(*two.epoch_price(3600), 0.06);
}

TEST(PricesText, MarksCardsWithoutAKnownSpeed) {
  PriceAnswer answer{.plans = {plan("fast", 3, 100), plan("unknown", 4, {}),
                               plan("small", 1, {}, "no plan fits")},
                     .images = 3600};
  EXPECT_EQ(prices_text(answer),
            "The run fits; an epoch of 3600 images at the speeds of the price "
            "list\n"
            "  machine  GPUs  of      needs  an hour  an epoch  takes\n"
            "  fast     2     10 GiB  1 GiB  3        0.03      36s\n"
            "\n"
            "The run fits, but no speed of these is known, so that an epoch "
            "has no price: by the price of GPU memory\n"
            "(measure images a second in a short run, and add "
            "images_per_second to the price list)\n"
            "  machine  GPUs  of      needs  an hour  a GiB for an hour\n"
            "  unknown  2     10 GiB  1 GiB  4        0.2\n"
            "\n"
            "Does not fit, or cannot train\n"
            "  small: no plan fits\n");
  EXPECT_EQ(exit_code_of(answer), 0);
  answer.plans.erase(answer.plans.begin(), answer.plans.begin() + 2);
  EXPECT_EQ(exit_code_of(answer), 3);
}

PriceAnswer priced(const std::string& prices,
                   const std::vector<std::string>& more,
                   const AskData& ask = {}) {
  const TemporaryFolder folder;
  folder.write("prices.yaml", prices);
  std::vector<std::string> words = {"plan",
                                    "--cfg",
                                    "yolov5s",
                                    "--batch",
                                    "16",
                                    "--prices",
                                    (folder.path() / "prices.yaml").string()};
  words.insert(words.end(), more.begin(), more.end());
  return price_plans(parse_command_line(words), ask);
}

std::string price_refusal(const std::string& prices,
                          const std::vector<std::string>& more) {
  try {
    priced(prices, more);
  } catch (const Error& error) {
    return error.what();
  }
  return "accepted";
}

TEST(PricePlans, MachinesOfTheCatalogueWithWhatFits) {
  const PriceAnswer answer = priced(
      "g4dn.xlarge: {price: 0.526, images_per_second: 100}\n"
      "g5.xlarge: {price: 1.006, images_per_second: 300}\n"
      "p4d.24xlarge: 32.77\n",
      {"--images", "1000"});
  std::vector<std::string> names;
  for (const PricedPlan& one : answer.plans) names.push_back(one.machine.name);
  EXPECT_THAT(names, ElementsAre("g5.xlarge", "g4dn.xlarge", "p4d.24xlarge"));
  EXPECT_EQ(answer.plans[2].num_gpus, 8);
  EXPECT_GT(answer.plans[0].predicted_peak_bytes, kGiB);
  const auto json = nlohmann::json::parse(prices_json(answer));
  EXPECT_EQ(json["images_per_epoch"], 1000);
  EXPECT_EQ(json["machines"].size(), 3u);
  EXPECT_TRUE(json["machines"][0].contains("epoch_price"));
  EXPECT_FALSE(json["machines"][2].contains("epoch_price"));
}

TEST(PricePlans, CardsThatCannotTrainAreNotRanked) {
  const PriceAnswer answer =
      priced("p3.2xlarge: 0.1\nGTX 1080 Ti: 0.05\ng4dn.xlarge: 0.526\n", {});
  ASSERT_EQ(answer.plans.size(), 3u);
  EXPECT_EQ(answer.plans[0].machine.name, "g4dn.xlarge");
  EXPECT_THAT(answer.plans[1].refusal, HasSubstr("compute capability 7.0"));
  EXPECT_THAT(answer.plans[2].refusal, HasSubstr("compute capability 6.1"));
  EXPECT_EQ(exit_code_of(priced("p3.2xlarge: 0.1\n", {})), 3);
}

TEST(PricePlans, TheImagesAreThoseOfTheDataSetWhichIsReadOnce) {
  const TemporaryFolder folder;
  folder.write("images/a.png", "");
  folder.write("data.yaml", "train: images\nval: images\nnames: [a]\n");
  int asked = 0;
  const AskData ask = [&](configs::RunConfig& config, WantedFacts) {
    ++asked;
    config.label_counts =
        predict::to_text(predict::label_statistics({1, 2, 3}));
  };
  const std::string data = (folder.path() / "data.yaml").string();
  const PriceAnswer answer = priced(
      "g4dn.xlarge: 0.526\ng5.xlarge: {price: 1, images_per_second: 3}\n",
      {"--data", data}, ask);
  EXPECT_EQ(asked, 1);
  EXPECT_EQ(answer.images, 3);
  EXPECT_DOUBLE_EQ(*answer.plans[0].epoch_seconds(answer.images), 1);
}

TEST(PricePlans, ImagesAreAskedForOnlyWhereAPlanWithASpeedFits) {
  const PriceAnswer answer = priced(
      "g4dn.xlarge: {price: 1, images_per_second: 3}\n", {"--img", "20000"});
  ASSERT_EQ(answer.plans.size(), 1u);
  EXPECT_FALSE(answer.plans[0].refusal.empty());
  EXPECT_EQ(answer.images, 0);
}

TEST(PricePlans, NonsensicalPricesAreRefused) {
  const std::string fast = "g5.xlarge: {price: 1, images_per_second: 300}\n";
  EXPECT_THAT(price_refusal(fast, {}), HasSubstr("or --images N"));
  EXPECT_EQ(price_refusal("g5.xlarge: 1\n", {}), "accepted");
  EXPECT_THAT(price_refusal(fast, {"--images", "0"}),
              HasSubstr("--images 0 is no number"));
  EXPECT_THAT(price_refusal(fast, {"--sweep", "img=320"}),
              HasSubstr("--sweep is of one kind of machine"));
  EXPECT_THAT(price_refusal(fast, {"--device", "0", "--images", "5"}),
              HasSubstr("--device names this machine's GPUs"));
  EXPECT_THAT(price_refusal(fast, {"--processes", "2", "--images", "5"}),
              HasSubstr("--processes is given"));
}

}  // namespace
}  // namespace headroom::cli
