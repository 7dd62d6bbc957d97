#include "configs/range_wish.h"

#include <gtest/gtest.h>

#include "configs/layers/model_table.h"
#include "configs/run_config.h"
#include "configs/yaml/strict_yaml.h"
#include "tests/support/refusal.h"
#include "tests/support/temporary_folder.h"

namespace headroom::configs {
namespace {

std::optional<RangeWish> wish_of(const std::string& text) {
  return range_wish_of(yaml::parse_yaml(text, "data.yaml"));
}

TEST(RangeWish, IsReadAndWritten) {
  EXPECT_EQ(wish_of("names: [a]"), std::nullopt);
  EXPECT_EQ(wish_of("range:"), std::nullopt);
  EXPECT_EQ(wish_of("range: [0, 4095]")->ranges, (ValueRanges{{0, 4095}}));
  EXPECT_EQ(wish_of("range: [[0, 1e3], [-5, 0.5]]")->ranges,
            (ValueRanges{{0, 1000}, {-5, 0.5}}));
  const RangeWish measured =
      *wish_of("range: {percentiles: [1, 99.5], per_band: true}");
  EXPECT_TRUE(measured.is_measured());
  EXPECT_EQ(measured.low_percentile, 1);
  EXPECT_EQ(measured.high_percentile, 99.5);
  EXPECT_TRUE(measured.per_band);
  for (const char* text : {"range: [0, 4095]", "range: [[0, 1000], [-5, 0.5]]",
                           "range: {percentiles: [1, 99.5], per_band: true}",
                           "range: {percentiles: [0, 100]}"}) {
    EXPECT_EQ(to_yaml(*wish_of(text)), text);
    EXPECT_EQ(range_line(wish_of(text)), std::string(text) + "\n");
  }
  EXPECT_EQ(range_line(std::nullopt), "");
}

TEST(RangeWish, RefusalsNameThePlaceAndTheForms) {
  const std::string forms =
      ": write range: [low, high], one such pair for each band, or "
      "{percentiles: [1, 99]}";
  const auto refusal = [](const std::string& text) {
    return testing::refusal_of([&] { wish_of(text); });
  };
  EXPECT_EQ(refusal("range: [9, 3]"),
            "[config] data.yaml:1:8: range is [9, 3], but low has to be below "
            "high" +
                forms);
  EXPECT_EQ(refusal("range: 7"),
            "[config] data.yaml:1:8: range is no pair [low, high]" + forms);
  EXPECT_EQ(refusal("range: [1, 2, 3]"),
            "[config] data.yaml:1:8: range is no pair [low, high]" + forms);
  EXPECT_EQ(refusal("range: [[0, 1], 5]"),
            "[config] data.yaml:1:17: range is no pair [low, high]" + forms);
  EXPECT_EQ(refusal("range: {percentiles: [-1, 50]}"),
            "[config] data.yaml:1:22: percentiles are [-1, 50], outside of 0 "
            "to 100" +
                forms);
  EXPECT_NE(refusal("range: [a, 2]"), "");
  EXPECT_NE(refusal("range: [.nan, 2]"), "");
  EXPECT_NE(refusal("range: {percentile: [1, 2]}"), "");
  EXPECT_NE(refusal("range: {percentiles: [1, 2], per_band: 7}"), "");
}

TEST(RangeWish, OfAFileOrAFolderOrNone) {
  testing::TemporaryFolder folder;
  EXPECT_EQ(read_range_wish(folder.path()), std::nullopt);
  EXPECT_EQ(read_range_wish(folder.path() / "none.yaml"), std::nullopt);
  const auto file = folder.write("data.yaml", "names: [a]\nrange: [1, 2]\n");
  EXPECT_EQ(read_range_wish(file)->ranges, (ValueRanges{{1, 2}}));
  EXPECT_EQ(read_range_wish(folder.path())->ranges, (ValueRanges{{1, 2}}));
}

TEST(ValueRangeOfARun, IsCheckedByItsForm) {
  RunConfig config;
  EXPECT_EQ(value_ranges_of(config), ValueRanges());
  config.value_range = "0,4095 1,2";
  EXPECT_EQ(value_ranges_of(config), (ValueRanges{{0, 4095}, {1, 2}}));
  config.value_range = "4095,0";
  EXPECT_EQ(testing::refusal_of([&] { check_run_config(config); }),
            "[config] value_range is '4095,0', which is no low,high with low "
            "below high, one pair or one for each band: write it as '0,4095', "
            "or range: [0, 4095] into data.yaml");
}

TEST(ValueRangeOfWeights, IsReadOrRefused) {
  EXPECT_EQ(layers::trained_ranges({}, "w"), ValueRanges());
  EXPECT_EQ(layers::trained_ranges({{"value_range", "0,4095"}}, "w"),
            (ValueRanges{{0, 4095}}));
  EXPECT_EQ(testing::refusal_of([] {
              layers::trained_ranges({{"value_range", "9"}}, "w.safetensors");
            }),
            "[weights] w.safetensors says value_range '9', which is no range "
            "of values: use other weights");
}

}  // namespace
}  // namespace headroom::configs
